//! Messages between processes.

use anyhow::Result;
use tch::Tensor;

use crate::base::tensor::host_f32;

/// Floats that one message holds.
pub const MOST: usize = 1 << 30;

/// Messages between processes. All of them must make the same calls in the same order.
pub trait Network {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// The numbers that all processes give, in the order of ranks.
    fn numbers(&self, own: u64) -> Vec<u64>;

    /// The floats of all processes, one after the other; the process of rank r has `counts[r]` of them.
    fn gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]);

    /// Sums over all processes, the same bits in each.
    fn sum(&self, values: &mut [f32]);

    /// Overwrites `bytes` by those of rank 0.
    fn broadcast(&self, bytes: &mut [u8]);

    /// The processes that give the same color, among themselves.
    fn split(&self, color: usize) -> Box<dyn Network>;

    /// Waits for all others, without a busy loop.
    fn wait(&self);

    /// Ends all processes.
    fn abort(&self, code: u8) -> !;
}

/// Rows `[N_r, K]` of every process, of which there are `counts`, as `[N, K]`, in pieces of columns that fit into a message.
pub fn gather_rows(network: &dyn Network, own: &Tensor, counts: &[usize]) -> Result<Tensor> {
    let rows: usize = counts.iter().sum();
    let columns = own.size()[1];
    let most = (MOST / rows.max(1)).max(1) as i64;
    let mut pieces = Vec::new();
    for start in (0..columns).step_by(most as usize) {
        let width = most.min(columns - start);
        let floats = host_f32(&own.narrow(1, start, width))?;
        let counts: Vec<usize> = counts.iter().map(|rows| rows * width as usize).collect();
        let mut all = vec![0.0; rows * width as usize];
        network.gather(&floats, &counts, &mut all);
        pieces.push(Tensor::from_slice(&all).view([rows as i64, width]));
    }
    Ok(Tensor::cat(&pieces, 1))
}
