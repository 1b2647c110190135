//! The kernel for every machine.

use super::{BITS, Compute, GROUP, HALF, Inputs, Panel, round, shift, write};

#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Compute for Portable {
    const ROWS: usize = 1;

    fn tile<const M: usize>(self, rows: [&[Inputs]; M], panel: Panel, out: &mut [&mut [f32]], start: usize) {
        let mut all = [*panel.bias; M];
        for (row, sums) in rows.into_iter().zip(&mut all) {
            for (inputs, weights) in row.iter().zip(panel.blocks) {
                let (halves, _) = sums.as_chunks_mut::<HALF>();
                for (half, sums) in halves.iter_mut().enumerate() {
                    let mut products = [0i32; HALF];
                    for (group, numbers) in weights.numbers.iter().enumerate() {
                        let inputs: [i32; GROUP] = std::array::from_fn(|i| {
                            i32::from(inputs.numbers[group * GROUP + i]) - shift(BITS) as i32
                        });
                        for (product, numbers) in
                            products.iter_mut().zip(numbers[half].as_chunks::<GROUP>().0)
                        {
                            *product += (0..GROUP).map(|i| inputs[i] * i32::from(numbers[i])).sum::<i32>();
                        }
                    }
                    for ((sum, product), scale) in sums.iter_mut().zip(products).zip(weights.scales[half]) {
                        *sum += product as f32 * (inputs.scale * scale);
                    }
                }
            }
        }
        write(&all, out, start);
    }

    fn round(self, row: &[f32], blocks: &mut [Inputs]) {
        round(row, blocks, BITS);
    }
}
