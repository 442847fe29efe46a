//! What an attack is aimed at: the loss of m members as one classifier, differentiated down to the pixels. The members
//! are fixed: the same ones give the gradient and the reported predictions.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail, ensure};
use tch::Tensor;

use crate::predict::Predictor;
use crate::schema::words;
use crate::tensor::{ROOM_TO_PREDICT, guarded, label_log_probabilities, mixture_log_probabilities};

/// Whose loss is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// −log p̄_y of the mean probability over members.
    MeanProbability,
    /// Cross-entropy of the mean logit.
    MeanLogit,
    /// Mean over members of their cross-entropies.
    MeanLoss,
    /// Cross-entropy of one member (counted from 0): a transfer attack on the others.
    Member(usize),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::MeanProbability => f.write_str("mean-probability"),
            Target::MeanLogit => f.write_str("mean-logit"),
            Target::MeanLoss => f.write_str("mean-loss"),
            Target::Member(member) => write!(f, "member-{member}"),
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Target> {
        match text {
            "mean-probability" => Ok(Target::MeanProbability),
            "mean-logit" => Ok(Target::MeanLogit),
            "mean-loss" => Ok(Target::MeanLoss),
            _ => {
                let member = text.strip_prefix("member-").and_then(|digits| digits.parse().ok());
                member.map(Target::Member).ok_or_else(|| {
                    anyhow!(
                        "unknown target `{text}`; known: mean-probability, mean-logit, mean-loss, member-K (from 0)"
                    )
                })
            }
        }
    }
}

words! {
    /// Which pixels are moved.
    pub enum Resolution {
        /// Those the network sees, after resizing.
        Model = "model",
        /// Those of the data set, before resizing, which is differentiated through.
        Native = "native",
    }
}

/// Members under attack.
pub struct Victim<'a> {
    predictor: &'a Predictor<'a>,
    target: Target,
    resolution: Resolution,
}

impl<'a> Victim<'a> {
    /// # Errors
    /// A member that does not exist; linearised predictions.
    pub fn new(predictor: &'a Predictor<'a>, target: Target, resolution: Resolution) -> Result<Victim<'a>> {
        ensure!(
            !predictor.sources().is_empty(),
            "linearised predictions cannot be attacked: attack drawn weights (bella eval --predictive sampled) or \
             the mode (--draws 0)"
        );
        if let Target::Member(member) = target {
            let members = predictor.members();
            ensure!(member < members, "attack target member-{member}: there are {members} members, counted from 0");
        }
        Ok(Victim { predictor, target, resolution })
    }

    /// Bytes `[B, 3, h, w]` as the pixels in [0, 1] that the attack moves.
    pub fn pixels(&self, bytes: &Tensor) -> Tensor {
        let preprocess = &self.predictor.model.preprocess;
        let pixels = preprocess.unit(bytes);
        match self.resolution {
            Resolution::Model => preprocess.resize(&pixels),
            Resolution::Native => pixels,
        }
    }

    /// Gradient of the target's loss, summed over the batch, at pixels `[B, 3, h, w]` for labels `[B]`.
    ///
    /// Members in several chunks take two passes, so that memory is that of one chunk.
    ///
    /// # Errors
    /// Those of libtorch, and a gradient that is not finite.
    pub fn gradient(&self, pixels: &Tensor, labels: &Tensor) -> Result<Tensor> {
        guarded("attack", ROOM_TO_PREDICT, || {
            let pixels = pixels.detach().set_requires_grad(true);
            let sources = self.sources();
            let root = match sources {
                [only] => self.loss(&self.predictor.forward(only, &pixels), labels),
                _ => return self.chunked_gradient(&pixels, labels),
            };
            let gradient = Tensor::run_backward(&[root], &[&pixels], false, false).remove(0);
            finite(gradient)
        })
    }

    fn chunked_gradient(&self, pixels: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let logits = self.predictor.logits(&pixels.detach())?.set_requires_grad(true);
        let loss = self.loss(&logits, labels);
        let by_logits = Tensor::run_backward(&[loss], &[&logits], false, false).remove(0);
        let mut total = pixels.zeros_like().detach();
        let mut first = 0;
        for source in self.sources() {
            let logits = self.predictor.forward(source, pixels);
            let members = logits.size()[0];
            let root = (logits * by_logits.narrow(0, first, members)).sum(by_logits.kind());
            total += Tensor::run_backward(&[root], &[pixels], false, false).remove(0);
            first += members;
        }
        finite(total)
    }

    fn sources(&self) -> &[crate::backbone::weights::Weights<'a>] {
        self.predictor.sources()
    }

    /// The loss summed over images, from logits `[m, B, C]` and labels `[B]`.
    fn loss(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let kind = logits.kind();
        match self.target {
            Target::MeanProbability => -mixture_log_probabilities(logits, labels, kind).sum(kind),
            Target::MeanLogit => {
                let mean = logits.mean_dim([0i64].as_slice(), true, kind);
                -label_log_probabilities(&mean, labels, kind).sum(kind)
            }
            Target::MeanLoss => {
                -label_log_probabilities(logits, labels, kind).mean_dim([0i64].as_slice(), false, kind).sum(kind)
            }
            Target::Member(member) => -label_log_probabilities(&logits.get(member as i64), labels, kind).sum(kind),
        }
    }
}

fn finite(gradient: Tensor) -> Result<Tensor> {
    if gradient.isfinite().all().int64_value(&[]) == 0 {
        bail!("the gradient on the pixels is not finite: try --precision f32");
    }
    Ok(gradient)
}
