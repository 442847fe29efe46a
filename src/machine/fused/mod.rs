//! Parts of a network on the CPU for which libtorch makes several passes over memory, in one pass each: a frozen linear layer with
//! low-rank updates, also behind an activation, attention of few tokens, and the gradient of QuickGELU.
//!
//! Sums are made in f32, also of bf16 numbers, in an order that follows from the shapes alone, so that any number of threads gives the same
//! bits. Gradients are such passes, too; one that is to be differentiated again is that of libtorch's own operations.

use std::ffi::c_char;
use std::sync::LazyLock;

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

use super::calls::made;
use super::linear_kernels::by_onednn;

/// The factor of x in the sigmoid of QuickGELU. `rows.h` has it for the gradient.
pub const QUICK_SLOPE: f64 = 1.702;

/// The largest number of tokens of which each reads all in the one pass. With more of them, libtorch's blocks are faster.
const MOST_TOKENS: i64 = 64;

unsafe extern "C" {
    fn bella_adapted(
        x: *const C_tensor,
        weight: *const C_tensor,
        bias: *const C_tensor,
        a: *const C_tensor,
        b: *const C_tensor,
        frozen: *const C_tensor,
        scale: f64,
        by_onednn: bool,
        curve: i64,
        message: *mut *mut c_char,
    ) -> *mut C_tensor;
    fn bella_attention(qkv: *const C_tensor, heads: i64, message: *mut *mut c_char) -> *mut C_tensor;
    fn bella_quick_gelu(x: *const C_tensor, message: *mut *mut c_char) -> *mut C_tensor;
    fn bella_vectors() -> i64;
}

/// An activation of which the layer behind it makes values and derivatives itself, for its gradient. `fused.cpp` has the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    Gelu = 1,
    QuickGelu = 2,
}

/// A frozen linear layer with a low-rank update for each particle.
#[derive(Clone, Copy)]
pub struct Adapted<'a> {
    /// The frozen matrix W_0, `[out, in]`.
    pub weight: &'a Tensor,
    /// The frozen bias, `[out]`.
    pub bias: Option<&'a Tensor>,
    /// The matrices A, `[n, rank, in]`.
    pub a: &'a Tensor,
    /// The matrices B, `[n, out, rank]`.
    pub b: &'a Tensor,
    /// The factor alpha / rank.
    pub scale: f64,
}

impl Adapted<'_> {
    /// Returns x W_0ᵀ + bias + scale · x Aᵀ Bᵀ, `[n, M, out]`, for `x: [p, M, in]` with p = n or 1; `None` if this layer is left to libtorch's
    /// operations, as it is where the numbers of particles do not fit each other, which they refuse.
    ///
    /// `product: [p, M, out]` is x W_0ᵀ + bias, where it is known. Where there are many rows of f32, each update is added to the matrix in front
    /// of the product.
    pub fn forward(&self, x: &Tensor, product: Option<&Tensor>) -> Option<Tensor> {
        self.run(x, product, None)
    }

    /// Returns the same of the activation of `x: [n, M, in]`, of which a graph keeps x alone. Without a graph, x is changed.
    pub fn forward_behind(&self, curve: Curve, x: &Tensor) -> Option<Tensor> {
        (x.size()[0] == self.a.size()[0]).then(|| self.run(x, None, Some(curve))).flatten()
    }

    fn run(&self, x: &Tensor, product: Option<&Tensor>, curve: Option<Curve>) -> Option<Tensor> {
        let frozen = |tensor: &Tensor| tensor.kind() == x.kind() && !tensor.requires_grad();
        let factor = |tensor: &Tensor| tensor.kind() == x.kind();
        let fits = [1, self.a.size()[0]].contains(&x.size()[0]) && self.b.size()[0] == self.a.size()[0];
        let serves =
            fits && takes(x) && frozen(self.weight) && self.bias.is_none_or(frozen) && factor(self.a) && factor(self.b);
        let product = product.filter(|product| frozen(product) && product.size()[..2] == x.size()[..2]);
        serves.then(|| {
            let [bias, product] = [self.bias, product].map(|some| some.map_or(std::ptr::null(), Tensor::as_ptr));
            let [x_of, weight, a, b] = [x, self.weight, self.a, self.b].map(Tensor::as_ptr);
            let (by_onednn, curve) = (by_onednn(x, self.weight.numel() as i64), curve.map_or(0, |curve| curve as i64));
            // SAFETY: the pointers are to tensors that live until the call returns, and no exception leaves it.
            made(|message| unsafe {
                bella_adapted(x_of, weight, bias, a, b, product, self.scale, by_onednn, curve, message)
            })
        })
    }
}

/// Returns what tokens read of each other, `[S, T, heads · D]`, for queries, keys and values `[S, T, 3 · heads · D]`; `None` if it is left to
/// libtorch's operations.
pub fn attention(qkv: &Tensor, heads: i64) -> Option<Tensor> {
    let serves = takes(qkv) && qkv.size()[1] <= MOST_TOKENS;
    // SAFETY: as above.
    serves.then(|| made(|message| unsafe { bella_attention(qkv.as_ptr(), heads, message) }))
}

/// Returns x sigmoid(1.702 x), to the bit as libtorch's operations compute it; `None` if it is left to them.
pub fn quick_gelu(x: &Tensor) -> Option<Tensor> {
    // SAFETY: as above.
    takes(x).then(|| made(|message| unsafe { bella_quick_gelu(x.as_ptr(), message) }))
}

/// Returns whether `x` is left to the passes here.
fn takes(x: &Tensor) -> bool {
    x.numel() > 0 && serves(x.kind(), x.device())
}

/// Returns whether the passes here are faster than libtorch's for numbers of a type on a device.
pub fn serves(kind: Kind, device: Device) -> bool {
    // 16 numbers at once with AVX-512, 8 with AVX2, else 0: other processors have not been measured.
    // SAFETY: it takes nothing and lets no exception out.
    static VECTORS: LazyLock<i64> = LazyLock::new(|| unsafe { bella_vectors() });
    let least = match kind {
        Kind::Float => 8,
        // Without AVX-512, numbers of bf16 take longer to convert than is gained.
        Kind::BFloat16 => 16,
        _ => return false,
    };
    device == Device::Cpu && *VECTORS >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(shape: &[i64], kind: Kind) -> Tensor {
        Tensor::randn(shape, (Kind::Double, Device::Cpu)).to_kind(kind).set_requires_grad(true)
    }

    /// Returns an output, its gradients and the gradients of their norm, as f64. The loss bends little within the rounding of bf16.
    fn all(y: &Tensor, inputs: &[&Tensor]) -> Vec<Tensor> {
        let loss = (y.to_kind(Kind::Double) * 0.02).sin().sum(Kind::Double);
        let first = Tensor::run_backward(&[loss.shallow_clone()], inputs, true, false);
        let again = Tensor::run_backward(&[loss], inputs, true, true);
        let norm =
            again.iter().map(|g| g.to_kind(Kind::Double).square().sum(Kind::Double)).reduce(|a, b| a + b).unwrap();
        let second = Tensor::run_backward(&[norm], inputs, false, false);
        std::iter::once(y.shallow_clone())
            .chain(first)
            .chain(second)
            .map(|t| t.detach().to_kind(Kind::Double))
            .collect()
    }

    /// Returns what a pass gives, where it serves numbers of this type on this processor ([`processors_with_vectors_take_the_one_pass`]).
    #[track_caller]
    fn served(found: Option<Tensor>, kind: Kind) -> Option<Tensor> {
        assert_eq!(found.is_some(), serves(kind, Device::Cpu), "{kind:?}");
        found
    }

    fn assert_near(found: &[Tensor], expected: &[Tensor], tolerance: f64) {
        for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found.size(), expected.size());
            let largest = |tensor: &Tensor| tensor.abs().max().double_value(&[]);
            let apart = largest(&(found - expected)) / largest(expected);
            assert!(apart <= tolerance, "number {place} is {apart:e} apart");
        }
    }

    /// The layer by libtorch's operations, in the type of its inputs.
    fn plain([x, a, b]: [&Tensor; 3], weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        x.linear(weight, bias) + x.matmul(&a.transpose(1, 2)).matmul(&b.transpose(1, 2)) * 4.0
    }

    #[test]
    fn an_adapted_layer_and_its_gradients_are_those_of_libtorch() {
        tch::manual_seed(1);
        for number in 0..5 {
            // Three hundred rows are more than one slice; ranks that are no multiple of four; inputs of all particles or of one.
            let (n, rank, particles) = (3, 1 + number, if number % 2 == 0 { 3 } else { 1 });
            // Updates of larger matrices of f32 are added to them.
            let [inputs, outputs] = if number == 4 { [144, 128] } else { [37, 21] };
            let of = |kind: Kind| {
                tch::manual_seed(7 + number);
                let (x, a, b) = (
                    draw(&[particles, 300, inputs], kind),
                    draw(&[n, rank, inputs], kind),
                    draw(&[n, outputs, rank], kind),
                );
                let (weight, bias) = (draw(&[outputs, inputs], kind).detach(), draw(&[outputs], kind).detach());
                (x, a, b, weight, (number != 2).then_some(bias))
            };
            for (kind, tolerance) in [(Kind::Float, 2e-5), (Kind::BFloat16, 5e-2)] {
                let (x, a, b, weight, bias) = of(kind);
                let layer = Adapted { weight: &weight, bias: bias.as_ref(), a: &a, b: &b, scale: 4.0 };
                let Some(found) = served(layer.forward(&x, None), kind) else { continue };
                let wide = |t: &Tensor| t.detach().to_kind(Kind::Double).set_requires_grad(true);
                let [x64, a64, b64] = [&x, &a, &b].map(wide);
                let frozen = (wide(&weight).detach(), bias.as_ref().map(|bias| wide(bias).detach()));
                let expected = plain([&x64, &a64, &b64], &frozen.0, frozen.1.as_ref());
                let found = all(&found, &[&x, &a, &b]);
                assert_near(&found, &all(&expected, &[&x64, &a64, &b64]), tolerance);
            }
        }
    }

    #[test]
    fn an_adapted_layer_without_gradients_is_that_of_libtorch() {
        // Few rows, and so many that updates are added to matrices; sizes of whole vectors and others; inputs of all particles or of one.
        for (rows, [inputs, outputs], particles) in
            [(13, [37, 21], 2), (300, [144, 128], 2), (260, [131, 133], 2), (300, [144, 128], 1)]
        {
            for (kind, tolerance) in [(Kind::Float, 2e-5), (Kind::BFloat16, 5e-2)] {
                tch::manual_seed(11);
                let of = |shape: &[i64]| draw(shape, kind).detach();
                let (x, a, b) = (of(&[particles, rows, inputs]), of(&[2, 3, inputs]), of(&[2, outputs, 3]));
                let (weight, bias) = (of(&[outputs, inputs]), of(&[outputs]));
                let layer = Adapted { weight: &weight, bias: Some(&bias), a: &a, b: &b, scale: 4.0 };
                let Some(found) = served(tch::no_grad(|| layer.forward(&x, None)), kind) else { continue };
                let [x, a, b, weight, bias] = [&x, &a, &b, &weight, &bias].map(|t| t.to_kind(Kind::Double));
                let expected = plain([&x, &a, &b], &weight, Some(&bias));
                assert_near(&[found.to_kind(Kind::Double)], &[expected], tolerance);
            }
        }
    }

    #[test]
    fn an_adapted_layer_goes_on_from_its_frozen_product() {
        for (n, particles) in [(1, 1), (3, 1), (3, 3)] {
            tch::manual_seed(17);
            let of = |shape: &[i64]| draw(shape, Kind::BFloat16);
            let (x, a, b) = (of(&[particles, 40, 144]).detach(), of(&[n, 3, 144]), of(&[n, 128, 3]));
            let (weight, bias) = (of(&[128, 144]).detach(), of(&[128]).detach());
            let layer = Adapted { weight: &weight, bias: Some(&bias), a: &a, b: &b, scale: 4.0 };
            let product = crate::machine::linear_kernels::linear(&x, &weight, Some(&bias));
            let kept = product.copy();
            let Some(found) = served(layer.forward(&x, Some(&product)), Kind::BFloat16) else { continue };
            let [found, expected] = [found, layer.forward(&x, None).unwrap()].map(|y| all(&y, &[&a, &b]));
            assert!(found.iter().zip(&expected).all(|(found, expected)| found.equal(expected)));
            assert!(product.equal(&kept), "what other particles go on from stays");
        }
    }

    #[test]
    fn an_adapted_layer_behind_an_activation_and_its_gradients_are_those_of_libtorch() {
        for (number, curve) in [Curve::Gelu, Curve::QuickGelu].into_iter().enumerate() {
            for (kind, tolerance) in [(Kind::Float, 2e-5), (Kind::BFloat16, 5e-2)] {
                tch::manual_seed(13 + number as i64);
                // Three hundred rows are more than one slice, and rows are no multiple of four.
                let (x, a, b) = (
                    draw(&[2, 301, 37], kind),
                    draw(&[2, 3 + number as i64, 37], kind),
                    draw(&[2, 21, 3 + number as i64], kind),
                );
                let (weight, bias) = (draw(&[21, 37], kind).detach(), draw(&[21], kind).detach());
                let layer = Adapted { weight: &weight, bias: Some(&bias), a: &a, b: &b, scale: 4.0 };
                let Some(found) = served(layer.forward_behind(curve, &x), kind) else { continue };
                let wide = |t: &Tensor| t.detach().to_kind(Kind::Double).set_requires_grad(true);
                let ([x64, a64, b64], frozen) = ([&x, &a, &b].map(wide), [&weight, &bias].map(|t| wide(t).detach()));
                let bent = |x: &Tensor| match curve {
                    Curve::Gelu => x.gelu("none"),
                    Curve::QuickGelu => x * (x * QUICK_SLOPE).sigmoid(),
                };
                let expected = plain([&bent(&x64), &a64, &b64], &frozen[0], Some(&frozen[1]));
                let found = all(&found, &[&x, &a, &b]);
                assert_near(&found, &all(&expected, &[&x64, &a64, &b64]), tolerance);
                // Without a graph, of inputs that nobody needs any more; and where the inputs alone have no gradient.
                let plainly = tch::no_grad(|| layer.forward_behind(curve, &x.copy())).unwrap();
                assert_near(&[plainly.to_kind(Kind::Double)], &found[..1], tolerance);
                let of_constant = layer.forward_behind(curve, &x.detach()).unwrap();
                assert_near(&all(&of_constant, &[&a, &b])[1..3], &found[2..4], tolerance);
            }
        }
        let (x, a) = (draw(&[1, 5, 24], Kind::Float).detach(), draw(&[2, 4, 24], Kind::Float));
        let (b, weight) = (draw(&[2, 16, 4], Kind::Float), draw(&[16, 24], Kind::Float).detach());
        let layer = Adapted { weight: &weight, bias: None, a: &a, b: &b, scale: 4.0 };
        assert!(layer.forward_behind(Curve::Gelu, &x).is_none(), "inputs that members share are left to libtorch");
    }

    #[test]
    fn only_what_is_wanted_gets_a_gradient() {
        let (x, a) = (draw(&[1, 5, 24], Kind::Float).detach(), draw(&[2, 4, 24], Kind::Float));
        let (b, weight) = (draw(&[2, 16, 4], Kind::Float), draw(&[16, 24], Kind::Float).detach());
        let layer = Adapted { weight: &weight, bias: None, a: &a, b: &b, scale: 4.0 };
        if let Some(y) = served(layer.forward(&x, None), Kind::Float) {
            let found = Tensor::run_backward(&[y.sum(Kind::Float)], &[&b], false, false);
            let expected =
                Tensor::run_backward(&[plain([&x, &a, &b], &weight, None).sum(Kind::Float)], &[&b], false, false);
            assert_near(&found, &expected, 1e-5);
        }
        // More inputs than updates have no layer, and one update for several inputs is not that of the first alone.
        let three = x.expand([3, -1, -1], false);
        let of_one = Adapted { a: &a.narrow(0, 0, 1), b: &b.narrow(0, 0, 1), ..layer };
        assert!(layer.forward(&three, None).is_none() && of_one.forward(&three, None).is_none());
        // A weight that is trained itself is left to libtorch.
        let trained = weight.set_requires_grad(true);
        assert!(Adapted { weight: &trained, bias: None, a: &a, b: &b, scale: 1.0 }.forward(&x, None).is_none());
    }

    #[test]
    fn attention_and_its_gradients_are_those_of_libtorch() {
        for (tokens, heads, channels) in [(17, 3, 64), (50, 2, 64), (1, 2, 5), (33, 1, 20)] {
            for (kind, tolerance) in [(Kind::Float, 5e-6), (Kind::BFloat16, 3e-2)] {
                tch::manual_seed(3);
                let qkv = draw(&[4, tokens, 3 * heads * channels], kind);
                let Some(found) = served(attention(&qkv, heads), kind) else { continue };
                let wide = qkv.detach().to_kind(Kind::Double).set_requires_grad(true);
                let parts = wide.view([4, tokens, 3, heads, channels]).permute([2, 0, 3, 1, 4]).unbind(0);
                let scores = parts[0].matmul(&parts[1].transpose(2, 3)) * (channels as f64).powf(-0.5);
                let read = scores.softmax(-1, Kind::Double).matmul(&parts[2]).transpose(1, 2);
                let expected = read.reshape([4, tokens, heads * channels]);
                assert_near(&all(&found, &[&qkv]), &all(&expected, &[&wide]), tolerance);
            }
        }
    }

    /// Without this, the tests above would compare nothing where the choice of loops is wrong.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn processors_with_vectors_take_the_one_pass() {
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        for (kind, expected) in [(Kind::Float, has_avx2 || has_avx512), (Kind::BFloat16, has_avx512)] {
            assert_eq!(serves(kind, Device::Cpu), expected, "{kind:?}");
        }
    }

    #[test]
    fn quick_gelu_is_libtorchs_to_the_bit_and_its_gradients_are_near() {
        tch::manual_seed(5);
        let plain = |x: &Tensor| x * (x * QUICK_SLOPE).sigmoid();
        // A gradient of a gradient is by libtorch's operations, which round after each.
        for (kind, tolerance, twice) in [(Kind::Float, 1e-6, 5e-6), (Kind::BFloat16, 1e-2, 5e-2)] {
            // More numbers than one row has; some so large that the sigmoid is 0 or 1.
            let x = (draw(&[3, 1733], Kind::Double).detach() * 3.0
                + Tensor::from_slice(&[0.0, 200.0, -200.0]).unsqueeze(1))
            .to_kind(kind)
            .set_requires_grad(true);
            let Some(found) = served(quick_gelu(&x), kind) else { continue };
            assert!(found.equal(&plain(&x.detach())));
            let wide = x.detach().to_kind(Kind::Double).set_requires_grad(true);
            let (found, expected) = (all(&found, &[&x]), all(&plain(&wide), &[&wide]));
            assert_near(&found[..2], &expected[..2], tolerance);
            assert_near(&found[2..], &expected[2..], twice);
        }
    }

    #[test]
    fn many_tokens_and_wide_numbers_are_left_to_libtorch() {
        assert!(attention(&draw(&[1, 65, 12], Kind::Float), 2).is_none());
        assert!(attention(&draw(&[1, 5, 12], Kind::Double), 2).is_none());
    }
}
