//! The rate of this machine's matrix products: what a step's own rate is compared with.

use anyhow::Result;
use tch::{Device, Kind, Tensor, no_grad};

use super::clock::Clock;
use crate::base::tensor::guarded;

/// Operations a second, of some products.
const PRODUCTS: usize = 5;

/// Floating-point operations a second of square products `x Wᵀ` as the network's layers compute them, one rate a product.
///
/// # Errors
/// Those of libtorch.
pub fn matmul_rates(device: Device, kind: Kind) -> Result<Vec<f64>> {
    let side: i64 = if device == Device::Cpu { 1536 } else { 8192 };
    guarded("matrix product", "free memory", || {
        let x = Tensor::f_randn([side, side], (Kind::Float, device))?.to_kind(kind);
        let weight = x.tr().contiguous();
        let work = 2.0 * (side as f64).powi(3);
        no_grad(|| {
            // The first product sets libraries up.
            drop(x.f_linear(&weight, None::<&Tensor>)?);
            let rate = |_| {
                let clock = Clock::start(device);
                drop(x.f_linear(&weight, None::<&Tensor>)?);
                Ok(work / clock.stop().wall)
            };
            (0..PRODUCTS).map(rate).collect()
        })
    })
}
