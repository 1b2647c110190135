use super::*;

#[test]
fn for_another_connection_the_longest_idle_and_no_busy_one_is_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let connections = Connections { most: 3, ..Connections::default() };
        let opened: Vec<_> = (0..3).map(|_| connections.open()).collect();
        // The first connection is busy, and the second was used after the third.
        let _busy = opened[0].1.begin();
        drop(opened[1].1.begin());
        let (number, oldest) = &opened[2];
        tokio::join!(connections.make_room(), async {
            oldest.close.notified().await;
            connections.close(*number);
        });
        connections.make_room().await;
    });
}

/// Answers with this many numbers when it is allowed to.
#[derive(Default)]
struct Held {
    numbers: usize,
    begun: Notify,
    may_answer: Notify,
}

impl Handler for Held {
    async fn answer(self: &Arc<Self>, _: Request, _: u64, _: Arc<Reservation>) -> Result<Response> {
        self.begun.notify_one();
        self.may_answer.notified().await;
        Ok(Response::Counts(vec![7; self.numbers]))
    }
}

/// Keeps a question slowly, and tells how many it has.
#[derive(Default)]
struct Slow(AtomicUsize);

impl Handler for Slow {
    async fn answer(self: &Arc<Self>, request: Request, _: u64, _: Arc<Reservation>) -> Result<Response> {
        if request.is_done_first() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.fetch_add(1, Ordering::SeqCst);
            return Ok(Response::Done);
        }
        Ok(Response::Counts(vec![self.0.load(Ordering::SeqCst) as u32]))
    }
}

#[test]
fn a_question_that_is_requested_right_after_it_was_logged_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, stream) = UnixStream::pair().unwrap();
        tokio::spawn(serve(stream, Arc::new(Connections::default()), Arc::new(Slow::default())));
        let requests = [
            Request::LogQuestion { database: 1, question: Box::default() },
            Request::FindQuestion { database: 1, query_id: Default::default() },
        ];
        let mut answers = Vec::new();
        for (id, request) in (1..).zip(&requests) {
            client.write_all(&frame::encode_request(id, request).unwrap()).await.unwrap();
        }
        for _ in &requests {
            let mut prefix = [0; 4];
            client.read_exact(&mut prefix).await.unwrap();
            let mut content = vec![0; frame::frame_length(prefix).unwrap()];
            client.read_exact(&mut content).await.unwrap();
            answers.push(frame::decode::<Response>(&content).unwrap().body);
        }
        assert_eq!(answers, [Response::Done, Response::Counts(vec![1])]);
    });
}

/// Acts as if it had just been decided to close the only connection. Returns once that has been seen.
async fn try_to_close(connections: &Connections) {
    let activity = lock(&connections.state).connections.values().next().cloned().unwrap();
    activity.close.notify_one();
    while timeout(Duration::ZERO, activity.close.notified()).await.is_ok() {
        activity.close.notify_one();
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_connection_is_not_closed_before_its_answer_is_written() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Many more bytes than fit into the socket before its client reads.
        for numbers in [1, 2_000_000] {
            let (mut client, stream) = UnixStream::pair().unwrap();
            let connections = Arc::new(Connections { most: 1, ..Connections::default() });
            let service = Arc::new(Held { numbers, ..Held::default() });
            tokio::spawn(serve(stream, Arc::clone(&connections), Arc::clone(&service)));
            client.write_all(&frame::encode_request(3, &Request::Health).unwrap()).await.unwrap();
            service.begun.notified().await;
            try_to_close(&connections).await;
            service.may_answer.notify_one();
            let mut prefix = [0; 4];
            client.read_exact(&mut prefix).await.unwrap();
            if numbers > 1 {
                try_to_close(&connections).await;
            }
            let mut content = vec![0; frame::frame_length(prefix).unwrap()];
            client.read_exact(&mut content).await.unwrap();
            let answer = frame::decode::<Response>(&content).unwrap();
            assert_eq!((answer.id, answer.body), (3, Response::Counts(vec![7; numbers])));
            // Now the connection is idle.
            connections.make_room().await;
            assert_eq!(client.read(&mut prefix).await.unwrap(), 0);
        }
    });
}
