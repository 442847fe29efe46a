//! The rate of matrix products on this machine, with which the rate of a training step is compared.

use anyhow::Result;
use tch::{Device, Kind, Tensor, no_grad};

use super::clock::Clock;
use crate::base::tensor::guarded;
use crate::machine::linear_kernels::linear;

/// The number of products that are timed.
const PRODUCTS: usize = 5;

/// Returns the rates of square products `x Wᵀ`, computed as in the layers of the network, in floating-point operations
/// per second, one per product.
///
/// # Errors
/// Fails if libtorch fails.
pub fn matmul_rates(device: Device, kind: Kind) -> Result<Vec<f64>> {
    let side: i64 = if device == Device::Cpu { 1536 } else { 8192 };
    guarded("matrix product", "free memory", || {
        let x = Tensor::f_randn([side, side], (Kind::Float, device))?.to_kind(kind);
        let (x, weight) = (x.unsqueeze(0), x.tr().contiguous());
        let work = 2.0 * (side as f64).powi(3);
        no_grad(|| {
            // The first product also initialises libraries, so it is not timed.
            drop(linear(&x, &weight, None));
            let rate = |_| {
                let clock = Clock::start(device);
                drop(linear(&x, &weight, None));
                Ok(work / clock.stop().wall)
            };
            (0..PRODUCTS).map(rate).collect()
        })
    })
}
