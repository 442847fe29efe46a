//! Linear layers of f32 and bf16 matrices on the CPU.
//!
//! libtorch computes those of f32 by MKL, which leaves AVX-512 unused on processors that are not Intel's. On such a processor they are
//! computed by oneDNN, which libtorch contains as well, in about half the time, and few rows by a loop that reads the matrix
//! as fast as memory gives it (`results/speed.md`). All sum in f32; the results differ by rounding. Those of bf16 libtorch computes by
//! oneDNN, too; called directly, it adds the bias by itself, and a frozen matrix is packed for it once and not at every product. The
//! results are the same to the bit, but for inputs whose rows do not follow each other: of these libtorch rounds sums before it adds
//! the bias.

use std::ffi::c_char;
use std::sync::LazyLock;

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

use super::calls::made;

/// The smallest number of weights of a layer for which oneDNN pays: below, its call takes longer than the product. The
/// samples do not count, so that the way of a layer does not depend on how many pass at once, but for few rows of f32
/// (`linear_kernels.cpp`).
const LEAST_WEIGHTS: i64 = 1 << 14;

unsafe extern "C" {
    fn bella_linear(
        x: *const C_tensor,
        weight: *const C_tensor,
        bias: *const C_tensor,
        message: *mut *mut c_char,
    ) -> *mut C_tensor;
    fn bella_has_onednn() -> bool;
    fn bella_most_packed() -> i64;
}

/// Returns `x Wᵀ + b` for `x: [p, M, in]`, `weight: [out, in]` and `bias: [out]`: `[p, M, out]`.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if !of_onednn(x, weight) && !is_frozen_bf16(x, weight) {
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

/// Returns whether a layer of f32 is computed by oneDNN.
fn of_onednn(x: &Tensor, weight: &Tensor) -> bool {
    let shape = weight.size();
    let of_f32 = [x, weight].into_iter().all(|tensor| tensor.kind() == Kind::Float && tensor.device() == Device::Cpu);
    of_f32 && by_onednn(x, shape.iter().rev().take(2).product())
}

/// Returns whether a layer of bf16, whose weight is not trained, is computed by oneDNN without libtorch's way to it.
fn is_frozen_bf16(x: &Tensor, weight: &Tensor) -> bool {
    let of_bf16 = [x, weight].into_iter().all(|tensor| tensor.kind() == Kind::BFloat16);
    of_bf16 && !weight.requires_grad() && by_onednn(x, weight.numel() as i64)
}

/// Returns whether oneDNN is called for a layer with so many weights of the type of its input.
pub(super) fn by_onednn(x: &Tensor, weights: i64) -> bool {
    pays(x.kind()) && x.device() == Device::Cpu && weights >= LEAST_WEIGHTS && x.numel() > 0
}

/// Returns whether oneDNN is faster than libtorch's own call for numbers of a type on this processor.
fn pays(kind: Kind) -> bool {
    // SAFETY: it takes nothing and lets no exception out.
    static HAS: LazyLock<bool> = LazyLock::new(|| unsafe { bella_has_onednn() });
    match kind {
        Kind::Float => *HAS && mkl_leaves_avx512_unused(),
        Kind::BFloat16 => *HAS && multiplies_bf16(),
        _ => false,
    }
}

/// Returns the most bytes of packed matrices that are kept beside frozen ones of a type on the CPU, which have so many numbers each.
pub fn packed_bytes(kind: Kind, matrices: impl Iterator<Item = usize>) -> u64 {
    if kind != Kind::BFloat16 || !pays(kind) {
        return 0;
    }
    let numbers: usize = matrices.filter(|numbers| *numbers as i64 >= LEAST_WEIGHTS).sum();
    // SAFETY: it takes nothing and lets no exception out.
    let most = unsafe { bella_most_packed() };
    ((numbers * kind.elt_size_in_bytes()) as u64).min(most as u64)
}

/// Returns whether this is a processor with AVX-512 on which MKL does not use it.
#[cfg(target_arch = "x86_64")]
fn mkl_leaves_avx512_unused() -> bool {
    is_amd() && is_x86_feature_detected!("avx512f")
}

/// Returns whether this is a processor of that maker with AVX-512's products of bf16: others have not been measured.
#[cfg(target_arch = "x86_64")]
fn multiplies_bf16() -> bool {
    is_amd() && is_x86_feature_detected!("avx512bf16")
}

#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    static IS_AMD: LazyLock<bool> = LazyLock::new(|| {
        let maker = std::arch::x86_64::__cpuid(0);
        [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
    });
    *IS_AMD
}

/// Returns false: other processors have not been measured.
#[cfg(not(target_arch = "x86_64"))]
fn mkl_leaves_avx512_unused() -> bool {
    false
}

/// Returns false: other processors have not been measured.
#[cfg(not(target_arch = "x86_64"))]
fn multiplies_bf16() -> bool {
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
    fn few_rows_are_multiplied_as_many_are_and_each_as_if_it_were_alone() {
        tch::manual_seed(4);
        // Sizes of whole vectors and others, and rows of a larger matrix.
        for (inputs, outputs, first) in [(64, 32, 0), (37, 21, 0), (37, 21, 5), (3, 2, 1)] {
            let weight = draw(&[40, inputs]).detach().narrow(0, first, outputs);
            let (x, bias) = (draw(&[1, 16, inputs]).detach(), draw(&[outputs]).detach());
            let of = |rows: i64| onednn(&x.narrow(1, 0, rows), &weight.unsqueeze(0), Some(&bias));
            let together = of(16);
            assert!(is_near(&together, &x.linear(&weight, Some(&bias))));
            assert!((1..16).all(|rows| of(rows).equal(&together.narrow(1, 0, rows))));
            assert!(is_near(&onednn(&x, &weight.unsqueeze(0), None), &(&together - &bias)));
        }
    }

    fn draw_bf16(shape: &[i64]) -> Tensor {
        draw(shape).detach().to_kind(Kind::BFloat16)
    }

    #[test]
    fn frozen_layers_of_bf16_and_their_gradients_are_those_of_libtorch_to_the_bit() {
        tch::manual_seed(2);
        let (all, bias) = (draw_bf16(&[200, 130]), draw_bf16(&[200]));
        let x = draw_bf16(&[2, 37, 130]).set_requires_grad(true);
        let all_of = |y: Tensor| {
            let gradient = Tensor::run_backward(&[(&y * &y).sum(Kind::Float)], &[&x], false, false).remove(0);
            [y, gradient]
        };
        for (start, rows) in [(0, 200), (32, 150)] {
            let (weight, bias) = (all.narrow(0, start, rows), bias.narrow(0, start, rows));
            let plain = [all_of(x.linear(&weight, Some(&bias))), all_of(x.linear(&weight, None::<&Tensor>))];
            // The first product by a matrix packs it, the second has it packed.
            for time in 0..2 {
                let found = [all_of(linear(&x, &weight, Some(&bias))), all_of(linear(&x, &weight, None))];
                let pairs = found.iter().flatten().zip(plain.iter().flatten());
                assert!(pairs.into_iter().all(|(found, plain)| found.equal(plain)), "time {time}, rows from {start}");
            }
        }
    }

    #[test]
    fn a_packed_matrix_is_forgotten_when_it_changes_or_ends() {
        tch::manual_seed(3);
        let x = draw_bf16(&[1, 20, 128]);
        let is_plain = |weight: &Tensor| linear(&x, weight, None).equal(&x.linear(weight, None::<&Tensor>));
        let mut weight = draw_bf16(&[128, 128]);
        for _ in 0..3 {
            assert!((0..3).all(|_| is_plain(&weight)));
            let _ = weight.g_mul_scalar_(2.0);
        }
        // A new matrix may lie where one was.
        for _ in 0..20 {
            weight = draw_bf16(&[128, 128]);
            assert!((0..3).all(|_| is_plain(&weight)));
        }
    }

    #[test]
    fn packed_matrices_take_as_much_as_frozen_ones_up_to_a_bound() {
        let bytes = |kind, numbers: &[usize]| packed_bytes(kind, numbers.iter().copied());
        assert_eq!(bytes(Kind::Float, &[1 << 20]), 0);
        if pays(Kind::BFloat16) {
            assert_eq!(bytes(Kind::BFloat16, &[1 << 20, 100]), 2 << 20, "small ones are not packed");
            assert_eq!(bytes(Kind::BFloat16, &[1 << 30]), 32 << 20);
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_an_error_with_a_message() {
        let failed =
            crate::base::tensor::guarded("a layer", "", || Ok(onednn(&draw(&[1, 5, 7]), &draw(&[1, 16, 24]), None)));
        assert!(failed.unwrap_err().to_string().starts_with("a layer: "));
    }
}
