//! Finds the values that names do not tell (heads, activation, eps) by reproducing the archive's own forward pass. The
//! smallest difference wins, and none above the bound is accepted. In half precision, where rounding alone may bring a wrong value
//! a little closer, a value wins over a likelier one only if it halves the difference.

use anyhow::{Result, bail};
use tch::{Device, Kind, Tensor};

use crate::base::small::push_new;
use crate::base::tensor::{ROOM_ELSEWHERE, guarded};
use crate::model::recognition::complete::Hints;
use crate::model::vit::{Activation, Traits};
use crate::schema::{settings, words};

/// The largest relative difference between the native features and others' that is accepted in f32.
pub const MAX_DIFFERENCE_F32: f64 = 1e-5;
const MAX_DIFFERENCE_HALF: f64 = 1e-2;
const MIN_COSINE_HALF: f64 = 0.9999;

settings! {
    /// The traits that the user may fix in `[checkpoint]`.
    #[derive(Clone, Debug, Default)]
    pub struct Fixed {
        /// Name of the network in timm, where no config beside the weights tells it.
        pub architecture: Option<String>;
        /// Number of attention heads, where the self-check cannot find it.
        pub heads: Option<i64>, in 1..=1024;
        /// Activation of the MLP layers, where the self-check cannot find it.
        pub activation: Option<Activation>;
        /// Epsilon of LayerNorm, where the self-check cannot find it.
        pub eps: Option<f64>, in above(0.0);
    }
}

words! {
    /// The origin of a trait of a network.
    pub enum Source {
        SelfCheck = "self-check",
        Code = "the archive's code",
        Weights = "names and shapes of the weights",
        Config = "the config beside the weights",
        Default = "default of its class",
        Architecture = "timm's architecture",
        User = "given",
    }
}

/// The origin of each trait of a network.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    pub heads: Source,
    pub activation: Source,
    pub eps: Source,
    pub rope: Source,
    pub readout: Source,
}

impl Sources {
    pub fn all(source: Source) -> Sources {
        Sources { heads: source, activation: source, eps: source, rope: source, readout: source }
    }

    /// Returns the sources where the user's own values take precedence.
    pub fn overridden(self, fixed: &Fixed) -> Sources {
        let of = |given: bool, source: Source| if given { Source::User } else { source };
        Sources {
            heads: of(fixed.heads.is_some(), self.heads),
            activation: of(fixed.activation.is_some(), self.activation),
            eps: of(fixed.eps.is_some(), self.eps),
            ..self
        }
    }
}

/// The difference between the native forward pass and the archive's own.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// max |native − archive| / max |archive|.
    pub relative: f64,
    pub cosine: f64,
}

/// The way in which the traits were settled.
#[derive(Debug)]
pub enum Evidence {
    /// The archive ran, and its output was reproduced.
    SelfCheck { difference: Difference, runner_up: Option<(Traits, Difference)>, half: bool, normalised: bool },
    /// The archive does not run on this machine; its code gave all traits.
    Code { reason: String },
    /// The checkpoint is a folder, whose config tells everything. The features were compared with the reference beside
    /// the weights, if there is one.
    Config { reference: Option<Difference> },
}

/// The values to try, the most likely first.
pub struct Candidates {
    heads: Vec<i64>,
    activations: Vec<Activation>,
    eps: Vec<f64>,
    /// The traits from the user and the archive's code, if these give all of them.
    pub told: Option<Traits>,
}

impl Candidates {
    /// Returns the values to try for a transformer of `width` channels.
    pub fn new(width: i64, fixed: &Fixed, hints: &Hints) -> Candidates {
        let usable = |w: &i64| *w < width && *w >= 4 && width % *w == 0;
        let hinted: Vec<i64> = hints.head_widths.iter().copied().filter(usable).collect();
        // The usual widths of a head come first, then every other divisor.
        let usual = [64, 32, 80, 96, 88, 72, 48, 128].into_iter().chain(4..=256).filter(usable);
        let mut heads: Vec<i64> = Vec::new();
        for head in hinted.iter().copied().chain(usual).map(|w| width / w).chain([1]) {
            push_new(&mut heads, head);
        }
        let mut activations = vec![Activation::Gelu, Activation::QuickGelu, Activation::GeluTanh, Activation::Silu];
        activations.sort_by_key(|a| Some(*a) != hints.activation);
        let mut eps = vec![1e-5, 1e-6, 1e-12];
        if let Some(hint) = hints.eps {
            eps.retain(|e| *e != hint);
            eps.insert(0, hint);
        }
        let told = || {
            Some(Traits {
                heads: fixed.heads.or(hinted.first().map(|w| width / w))?,
                activation: fixed.activation.or(hints.activation)?,
                eps: fixed.eps.or(hints.eps)?,
            })
        };
        Candidates {
            told: told(),
            heads: fixed.heads.map_or(heads, |h| vec![h]),
            activations: fixed.activation.map_or(activations, |a| vec![a]),
            eps: fixed.eps.map_or(eps, |e| vec![e]),
        }
    }
}

/// The archive's own output, and the native forward pass that must reproduce it.
pub struct SelfCheck<'a> {
    /// The archive's output, `[B, d]`.
    pub reference: Tensor,
    /// Returns the output `[B, d]` of the native forward pass with given traits, on the same input.
    pub native: &'a dyn Fn(Traits) -> Tensor,
    /// Whether the archive computes in half precision.
    pub half: bool,
    /// The advice printed if no candidate fits.
    pub advice: &'a str,
}

type Tried = Vec<(Traits, Difference)>;

/// Traits, and the evidence for them.
#[derive(Debug)]
pub struct Inferred {
    pub traits: Traits,
    pub evidence: Evidence,
}

impl SelfCheck<'_> {
    /// Varies one trait at a time, then, if nothing fits, tries the whole grid.
    ///
    /// # Errors
    /// Fails if no candidate reproduces the archive's output; the message gives the best difference.
    pub fn infer(&self, candidates: &Candidates) -> Result<Inferred> {
        let mut tried = Tried::new();
        let start =
            Traits { heads: candidates.heads[0], activation: candidates.activations[0], eps: candidates.eps[0] };
        let mut best = start;
        for heads in &candidates.heads {
            best = self.better(best, Traits { heads: *heads, ..best }, &mut tried)?;
            // A wrong number of heads is never this close, so the others need not be tried.
            if !self.half && self.accepts(self.measure(best, &mut tried)?) {
                break;
            }
        }
        for activation in &candidates.activations {
            best = self.better(best, Traits { activation: *activation, ..best }, &mut tried)?;
        }
        for eps in &candidates.eps {
            best = self.better(best, Traits { eps: *eps, ..best }, &mut tried)?;
        }
        if !self.accepts(self.measure(best, &mut tried)?) {
            for heads in &candidates.heads {
                for activation in &candidates.activations {
                    for eps in &candidates.eps {
                        let traits = Traits { heads: *heads, activation: *activation, eps: *eps };
                        best = self.better(best, traits, &mut tried)?;
                    }
                }
            }
        }
        let difference = self.measure(best, &mut tried)?;
        self.verdict(best, difference, tried)
    }

    fn verdict(&self, best: Traits, difference: Difference, tried: Tried) -> Result<Inferred> {
        if !self.accepts(difference) {
            bail!(
                "the native forward does not reproduce the archive's own: the best of {} tries ({} heads, {}, eps {:e}) \
                 differs by {:.1e} (cosine {:.5}); {}",
                tried.len(),
                best.heads,
                best.activation,
                best.eps,
                difference.relative,
                difference.cosine,
                self.advice
            );
        }
        let runner_up = tried
            .into_iter()
            .filter(|(traits, _)| *traits != best)
            .min_by(|a, b| a.1.relative.total_cmp(&b.1.relative));
        let evidence =
            Evidence::SelfCheck { difference, runner_up, half: self.half, normalised: self.reference_normalised() };
        Ok(Inferred { traits: best, evidence })
    }

    fn accepts(&self, difference: Difference) -> bool {
        if self.half {
            difference.relative <= MAX_DIFFERENCE_HALF && difference.cosine >= MIN_COSINE_HALF
        } else {
            difference.relative <= MAX_DIFFERENCE_F32
        }
    }

    fn better(&self, best: Traits, other: Traits, tried: &mut Tried) -> Result<Traits> {
        let old = self.measure(best, tried)?.relative;
        let new = self.measure(other, tried)?.relative;
        let bound = if self.half { old / 2.0 } else { old };
        Ok(if new < bound || old.is_nan() { other } else { best })
    }

    fn measure(&self, traits: Traits, tried: &mut Tried) -> Result<Difference> {
        if let Some((_, known)) = tried.iter().find(|(t, _)| *t == traits) {
            return Ok(*known);
        }
        let difference = guarded("self-check", ROOM_ELSEWHERE, || Ok(self.difference(traits)))?;
        tried.push((traits, difference));
        Ok(difference)
    }

    fn reference_normalised(&self) -> bool {
        let norms = self.reference.norm_scalaropt_dim(2.0, [-1], false);
        self.reference.dim() == 2 && f64::try_from((norms - 1.0).abs().max()).is_ok_and(|d| d < 1e-3)
    }

    fn difference(&self, traits: Traits) -> Difference {
        let _guard = tch::no_grad_guard();
        let mut native = (self.native)(traits);
        if self.reference_normalised() {
            native = &native / native.norm_scalaropt_dim(2.0, [-1], true);
        }
        compare(&native, &self.reference.to_device(Device::Cpu))
    }
}

/// Returns the relative difference and the cosine of two outputs; the difference is infinite if their shapes differ.
pub fn compare(native: &Tensor, reference: &Tensor) -> Difference {
    if native.size() != reference.size() {
        return Difference { relative: f64::INFINITY, cosine: f64::NAN };
    }
    let (native, reference) = (native.to_kind(Kind::Double).view(-1), reference.to_kind(Kind::Double).view(-1));
    let scalar = |t: Tensor| t.double_value(&[]);
    let relative = scalar((&native - &reference).abs().max()) / scalar(reference.abs().max());
    let cosine = scalar(native.dot(&reference)) / (scalar(native.norm()) * scalar(reference.norm()));
    Difference { relative, cosine }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with GELU whose rounding lies nearer to GELU's approximation by tanh.
    #[test]
    fn rounding_in_half_precision_settles_nothing() {
        let native = |traits: Traits| {
            let first = match traits.activation {
                Activation::Gelu => 1.0,
                Activation::GeluTanh => 1.001,
                _ => 1.1,
            };
            Tensor::from_slice(&[first, 2.0f32]).view([1, 2])
        };
        let reference = || Tensor::from_slice(&[1.0006f32, 2.0]).view([1, 2]);
        let found = |half, activation: Option<Activation>| {
            let hints = Hints { activation, eps: Some(1e-6), head_widths: vec![4] };
            let candidates = Candidates::new(8, &Fixed::default(), &hints);
            let check = SelfCheck { reference: reference(), native: &native, half, advice: "" };
            check.infer(&candidates).map(|found| (found.traits.activation, found.traits.eps))
        };
        assert_eq!(found(true, Some(Activation::Gelu)).unwrap(), (Activation::Gelu, 1e-6));
        assert_eq!(found(true, Some(Activation::QuickGelu)).unwrap().0, Activation::Gelu);
        assert!(found(false, None).unwrap_err().to_string().contains("gelu-tanh, eps 1e-6"));
    }
}
