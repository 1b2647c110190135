//! The gateway's protocol: a frame is refused, or it is read and can be sent again unchanged. A size that a
//! frame announces costs nothing before the bytes have arrived.

use super::Target;
use crate::memory::{Limits, measure};
use kb_gateway::endpoint::access::Access;
use kb_gateway::endpoint::usage::Usage;
use kb_gateway::frame::{
    Envelope, Head, MAX_FRAME, MAX_VECTORS, check, decode, encode, encode_request, frame_length,
};
use kb_gateway::protocol::{Client, EmbedReply, Request, Response, WireError};
use kb_gateway::turns::Urgency;
use kb_types::embedder::{Embedder, EmbedderConfig, Kind};
use kb_types::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

pub const TARGET: Target = Target {
    name: "protocol",
    run,
    seeds,
    words: r##"
        Embed Health TakeUsage CountTokens Embedded Usage Counts Alive Error Query Bulk Ingest
    "##,
};

/// Memory: serde allocates at most 1 MiB for the size that an array announces, and arrays nest four deep.
const LIMITS: Limits = Limits { bytes: (5 << 20, 64), allocations: (1000, 2) };

fn run(data: &[u8]) {
    if let Some(&prefix) = data.first_chunk::<4>()
        && let Ok(length) = frame_length(prefix)
    {
        assert!(length <= MAX_FRAME);
    }
    if let Some((&head, rest)) = data.split_first_chunk::<{ Head::SIZE }>()
        && let Ok(head) = Head::read(head)
    {
        assert!(head.length <= MAX_FRAME && head.answer <= MAX_VECTORS);
        // A request that fits its head can be sent again, under a head that it fits.
        if let Ok(Envelope { id, body }) = decode::<Request>(rest)
            && check(&body, &head).is_ok()
            && let Ok(frame) = encode_request(id, &body)
        {
            let sent = Head::read(*frame.first_chunk().unwrap()).unwrap();
            assert_eq!(sent.length, frame.len() - Head::SIZE);
            assert_eq!(check(&body, &sent), Ok(()));
        }
    }
    read::<Request>(data);
    read::<Response>(data);
}

fn read<T: for<'a> Deserialize<'a> + Serialize + Debug>(data: &[u8]) {
    let (read, cost) = measure(|| decode::<T>(data));
    cost.within(&LIMITS, data.len());
    let Ok(Envelope { id, body }) = read else { return };
    let said = format!("{body:?}");
    let frame = encode(id, body).unwrap();
    let length = frame_length(*frame.first_chunk().unwrap()).unwrap();
    assert_eq!(length, frame.len() - 4);
    let again = decode::<T>(&frame[4..]).unwrap();
    // The comparison is not ==, because a vector may contain NaN.
    assert_eq!((again.id, format!("{:?}", again.body)), (id, said));
}

fn seeds() -> Vec<Vec<u8>> {
    let embedder = Embedder {
        id: "e".into(),
        provider: "openai".into(),
        model: "m".into(),
        dimension: 3,
        base_url: Some("http://localhost:1".into()),
        config: EmbedderConfig::default(),
    };
    let texts: Vec<String> = vec!["one".into(), "two é".into()];
    let requests = [
        Request::Embed {
            embedder: embedder.clone(),
            access: Access::default(),
            kind: Kind::Query,
            urgency: Urgency::Bulk,
            texts: texts.clone(),
            tokens: vec![1, 2],
            client: Client::default(),
            patience_ms: Some(3),
        },
        Request::TakeUsage { database: 5, booked: 6 },
        Request::CountTokens { embedder, texts },
        Request::Health,
    ];
    let failed =
        Err(Error::Paused { embedder: "e".into(), problem: "p".into(), retry_after_ms: 7, of_tenant: true });
    let responses = [
        Response::Embedded(EmbedReply::new(2, vec![Ok(vec![1.0, f32::NAN]), failed], Usage::default())),
        Response::Counts(vec![1, 2, 3]),
        Response::Error(WireError::Configuration {
            object: "o".into(),
            problems: vec!["p".into(), "q".into()],
        }),
    ];
    let requests: Vec<Vec<u8>> = requests.iter().map(|body| encode_request(7, body).unwrap()).collect();
    let responses: Vec<Vec<u8>> = responses.iter().map(|body| encode(8, body).unwrap()).collect();
    let bodies =
        requests.iter().map(|frame| &frame[Head::SIZE..]).chain(responses.iter().map(|frame| &frame[4..]));
    let mut seeds: Vec<Vec<u8>> = bodies.map(<[u8]>::to_vec).collect();
    seeds.extend(requests);
    // An array and a string that announce more than follows.
    seeds.push(b"\x92\x01\x81\xa6Counts\xdd\xff\xff\xff\xff\x01".to_vec());
    seeds.push(b"\x92\x01\x81\xa5Error\x81\xa8Internal\xdb\xff\xff\xff\xffx".to_vec());
    seeds
}
