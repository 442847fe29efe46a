//! Linear layers of f32 matrices on the CPU.
//!
//! libtorch computes them by MKL, which leaves AVX-512 unused on processors that are not Intel's. On such a processor they are
//! computed by oneDNN, which libtorch contains as well, in about half the time (`results/speed.md`). Both sum in f32; the
//! results differ by rounding.

use std::ffi::c_char;
use std::sync::LazyLock;

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

use super::calls::made;

/// The smallest number of weights of a layer for which oneDNN pays: below, its call takes longer than the product. The
/// samples do not count, so that the way of a layer does not depend on how many pass at once.
const LEAST_WEIGHTS: i64 = 1 << 14;

unsafe extern "C" {
    fn bella_linear(
        x: *const C_tensor,
        weight: *const C_tensor,
        bias: *const C_tensor,
        message: *mut *mut c_char,
    ) -> *mut C_tensor;
    fn bella_has_onednn() -> bool;
}

/// Returns `x Wᵀ + b` for `x: [p, M, in]`, `weight: [out, in]` and `bias: [out]`: `[p, M, out]`.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if !of_onednn(x, weight) {
        return x.linear(weight, bias);
    }
    let size = x.size();
    let y = onednn(&x.reshape([1, -1, size[2]]), &weight.unsqueeze(0), bias);
    y.view([size[0], size[1], weight.size()[0]])
}

/// Returns `x_i W_iᵀ + b_i` for every particle i: `x: [n, M, in]`, `weight: [n, out, in]` and `bias: [out]` or `[n, out]`
/// give `[n, M, out]`.
pub fn linear_per_particle(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if of_onednn(x, weight) {
        return onednn(x, weight, bias);
    }
    let weight = weight.transpose(1, 2);
    match bias {
        Some(bias) if bias.dim() == 1 => bias.baddbmm(x, &weight, 1.0, 1.0),
        Some(bias) => bias.unsqueeze(1).baddbmm(x, &weight, 1.0, 1.0),
        None => x.bmm(&weight),
    }
}

/// Returns whether a layer is computed by oneDNN.
fn of_onednn(x: &Tensor, weight: &Tensor) -> bool {
    let shape = weight.size();
    is_plain(weight) && by_onednn(x, shape.iter().rev().take(2).product())
}

/// Returns whether a layer with so many weights of the type of its input is computed by oneDNN.
pub(super) fn by_onednn(x: &Tensor, weights: i64) -> bool {
    // SAFETY: it takes nothing and lets no exception out.
    static PAYS: LazyLock<bool> = LazyLock::new(|| mkl_leaves_avx512_unused() && unsafe { bella_has_onednn() });
    is_plain(x) && weights >= LEAST_WEIGHTS && x.numel() > 0 && *PAYS
}

/// Returns whether a tensor is one of f32 on the CPU.
fn is_plain(tensor: &Tensor) -> bool {
    tensor.device() == Device::Cpu && tensor.kind() == Kind::Float
}

/// Returns whether this is a processor with AVX-512 on which MKL does not use it.
#[cfg(target_arch = "x86_64")]
fn mkl_leaves_avx512_unused() -> bool {
    let maker = std::arch::x86_64::__cpuid(0);
    let is_amd = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
    is_amd && is_x86_feature_detected!("avx512f")
}

/// Returns false: other processors have not been measured.
#[cfg(not(target_arch = "x86_64"))]
fn mkl_leaves_avx512_unused() -> bool {
    false
}

/// Computes a layer per particle by oneDNN, with a graph where gradients are needed.
///
/// # Panics
/// Panics with libtorch's message if it fails, as tch does; [`crate::base::tensor::guarded`] turns this into an error.
fn onednn(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let bias = bias.map_or(std::ptr::null(), Tensor::as_ptr);
    // SAFETY: the pointers are to tensors that live until the call returns, and no exception leaves it.
    made(|message| unsafe { bella_linear(x.as_ptr(), weight.as_ptr(), bias, message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(shape: &[i64]) -> Tensor {
        Tensor::randn(shape, (Kind::Float, Device::Cpu)).set_requires_grad(true)
    }

    fn is_near(found: &Tensor, expected: &Tensor) -> bool {
        let largest = |tensor: &Tensor| tensor.abs().max().double_value(&[]);
        found.size() == expected.size() && largest(&(found - expected)) <= 1e-5 * largest(expected)
    }

    /// Compares outputs, gradients and gradients of gradients with libtorch's own products.
    fn compare(inputs: &[Tensor], onednn: impl Fn(&[Tensor]) -> Tensor, own: impl Fn(&[Tensor]) -> Tensor) {
        let all = |y: &Tensor| {
            let first = Tensor::run_backward(&[y.square().sum(Kind::Float)], inputs, true, true);
            let norm = first.iter().map(|gradient| gradient.square().sum(Kind::Float)).reduce(|a, b| a + b).unwrap();
            let second = Tensor::run_backward(&[norm], inputs, false, false);
            std::iter::once(y.shallow_clone()).chain(first).chain(second).collect::<Vec<_>>()
        };
        let (found, expected) = (all(&onednn(inputs)), all(&own(inputs)));
        assert!(found.iter().zip(&expected).all(|(found, expected)| is_near(found, expected)));
    }

    #[test]
    fn layers_and_their_gradients_are_those_of_libtorch() {
        tch::manual_seed(1);
        let inputs = [draw(&[2, 37, 24]), draw(&[16, 24]), draw(&[16])];
        compare(
            &inputs,
            |of| onednn(&of[0].reshape([1, -1, 24]), &of[1].unsqueeze(0), Some(&of[2])).view([2, 37, 16]),
            |of| of[0].linear(&of[1], Some(&of[2])),
        );
        for bias in [&[16][..], &[3, 16]] {
            let inputs = [draw(&[3, 37, 24]), draw(&[3, 16, 24]), draw(bias)];
            compare(
                &inputs,
                |of| onednn(&of[0], &of[1], Some(&of[2])),
                |of| of[0].bmm(&of[1].transpose(1, 2)) + of[2].view([-1, 1, 16]),
            );
        }
    }

    #[test]
    fn the_libtorch_that_is_built_against_has_onednn() {
        // SAFETY: as above.
        assert!(unsafe { bella_has_onednn() });
    }

    #[test]
    fn a_frozen_weight_and_a_shared_input_get_no_gradient() {
        let (x, weight) = (draw(&[1, 5, 24]).detach(), draw(&[3, 16, 24]));
        let y = onednn(&x.expand([3, -1, -1], false), &weight, None);
        let gradient = Tensor::run_backward(&[y.sum(Kind::Float)], &[&weight], false, false);
        assert!(is_near(
            &gradient[0],
            &x.sum_dim_intlist([1i64].as_slice(), true, None::<Kind>).expand([3, 16, -1], false)
        ));
        assert!(!onednn(&x, &weight.detach().narrow(0, 0, 1), None).requires_grad());
    }

    #[test]
    fn shapes_that_do_not_fit_are_an_error_with_a_message() {
        let failed =
            crate::base::tensor::guarded("a layer", "", || Ok(onednn(&draw(&[1, 5, 7]), &draw(&[1, 16, 24]), None)));
        assert!(failed.unwrap_err().to_string().starts_with("a layer: "));
    }
}
