//! The loss of a step's batch as methods see it: a [`Request`] and its [`Answer`].

use std::fmt;

use anyhow::{Error, Result, anyhow};
use tch::{Kind, Tensor};

/// The batch of a step, which a method may ask any number of times within the step. What a method needs of it is a field of
/// [`Request`], so that an objective around another one changes the requests that it knows and passes on the others.
pub trait Objective {
    /// Returns the answer to a request.
    ///
    /// # Errors
    /// Fails if the request cannot be answered ([`Request::refused`]), or if the computation fails.
    fn evaluate(&mut self, request: &Request) -> Result<Answer>;

    /// Returns the number of parts that the batch is split into (`train.accumulate`).
    fn parts(&self) -> usize {
        1
    }

    /// Returns the share of the batch that is in a part.
    fn share(&self, _part: usize) -> f64 {
        1.0
    }

    /// Returns the losses and gradients at `theta: [n, P]` on the batch.
    fn losses(&mut self, theta: &Tensor) -> Result<Evaluation> {
        self.evaluate(&Request::losses(theta))?.evaluation()
    }

    /// Returns the losses and gradients on one part, times its share. Over all parts they add up to those on the batch.
    fn losses_of_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        self.evaluate(&Request::losses(theta).on_part(part))?.evaluation()
    }

    /// Returns an output of the network for all particles `theta: [n, P]`, for a loss that joins them.
    fn outputs(&mut self, theta: &Tensor, output: Output) -> Result<Outputs> {
        self.evaluate(&Request::of(theta, Target::Output(output)))?.outputs()
    }

    /// Returns Σ_bc G_ibc ∂z_ibc/∂θ_i, `[n, P]`, for the output z at `theta: [n, P]` and `by_output: [n, B, C]`, the gradient G
    /// of a loss with respect to it. With [`outputs`](Self::outputs) it gives the exact gradient of any loss of all particles'
    /// outputs, however few particles and images go through the network at once.
    fn pull_back(&mut self, theta: &Tensor, output: Output, by_output: &Tensor) -> Result<Tensor> {
        self.evaluate(&Request::of(theta, Target::PullBack(output, by_output)))?.gradients()
    }
}

/// A question that a method asks about the batch of a step.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The particles, `[n, P]`.
    pub theta: &'a Tensor,
    /// The part of the batch, or `None` for the whole batch.
    pub part: Option<usize>,
    pub target: Target<'a>,
    pub extra: Extra<'a>,
}

/// The numbers that are requested.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The loss of each particle and its gradient, answered by [`Answer::Losses`].
    Losses,
    /// An output of the network, without a graph, answered by [`Answer::Outputs`].
    Output(Output),
    /// The gradient with respect to theta of the product of an output with these numbers, `[n, B, C]`, answered by
    /// [`Answer::Gradients`]. For the features, the columns of the head get 0.
    PullBack(Output, &'a Tensor),
}

/// An output of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The logits, `[n, B, C]`.
    Logits,
    /// The input of the head, normalised if the head sees it so, `[n, B, d]`.
    Features,
    /// The gradient of the logit of each image's label by the image's prepared pixels, `[n, B, D]`. What is pulled back from it is a
    /// gradient of gradients.
    InputGradients,
}

/// An addition to the losses and their gradients, answered by [`Answer::Extended`].
#[derive(Clone, Copy)]
pub enum Extra<'a> {
    None,
    /// Also the sum over the images of squared gradients of single images, over the size of the whole batch. Over all parts
    /// these add up to the mean. It costs one copy of a particle and of its gradient for each image that is computed at once.
    Squares,
    /// The factors A of low-rank updates have noise; also the gradients with respect to this noise.
    Noise(FactorNoise<'a>),
    /// Also Σ_j c_ij G_j in the columns of particle i, where G_j is the gradient of L_j with respect to the weights of a
    /// block. There is one constant matrix c per block: `[L, n, n]`.
    Mixing(&'a Tensor),
}

/// Noise in the factors A of low-rank updates. Each sample sees it times signs of its own (flipout): a random sign for each row
/// and for each column of A. The signs are a pure function of the seed, the step, the particle, the layer and the sample's number
/// in the batch.
#[derive(Clone, Copy)]
pub struct FactorNoise<'a> {
    /// The noise in the columns of the factors A, `[n, P]`. That in other columns is not read.
    pub noise: &'a Tensor,
    pub seed: u64,
    pub step: i64,
}

impl<'a> Request<'a> {
    /// Requests a target of the whole batch.
    pub fn of(theta: &'a Tensor, target: Target<'a>) -> Request<'a> {
        Request { theta, part: None, target, extra: Extra::None }
    }

    /// Requests losses and gradients on the whole batch.
    pub fn losses(theta: &'a Tensor) -> Request<'a> {
        Request::of(theta, Target::Losses)
    }

    pub fn on_part(self, part: usize) -> Request<'a> {
        Request { part: Some(part), ..self }
    }

    pub fn with(self, extra: Extra<'a>) -> Request<'a> {
        Request { extra, ..self }
    }

    /// Returns the particles of a request for losses and gradients alone, on the batch or on a part.
    ///
    /// # Errors
    /// Fails if something else is requested.
    pub fn plain(&self) -> Result<&'a Tensor> {
        match (self.target, self.extra) {
            (Target::Losses, Extra::None) => Ok(self.theta),
            _ => Err(self.refused("it knows losses and their gradients only")),
        }
    }

    /// Returns the error of an objective that cannot answer.
    pub fn refused(&self, why: &str) -> Error {
        Refused(format!("this batch cannot give {self}: {why}")).into()
    }
}

/// The error of an objective that cannot answer a request.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Adds the settings that avoid a request to the error of an objective that cannot answer it. Other errors stay as they are.
pub(super) fn advised(error: Error, advice: &str) -> Error {
    match error.downcast::<Refused>() {
        Ok(Refused(text)) => Refused(format!("{text}: {advice}")).into(),
        Err(other) => other,
    }
}

/// Writes a request in words, for errors.
impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = |output: Output| match output {
            Output::Logits => "the logits",
            Output::Features => "the features that enter the head",
            Output::InputGradients => "gradients by pixels",
        };
        match self.target {
            Target::Losses => write!(f, "losses and gradients")?,
            Target::Output(output) => write!(f, "{}", name(output))?,
            Target::PullBack(output, _) => write!(f, "the gradient that is pulled back from {}", name(output))?,
        }
        match self.extra {
            Extra::None => {}
            Extra::Squares => write!(f, " with squared gradients of single images")?,
            Extra::Noise(_) => write!(f, " with noise in low-rank factors")?,
            Extra::Mixing(_) => write!(f, " with gradients mixed in weight space")?,
        }
        match self.part {
            Some(part) => write!(f, " on part {part} of the batch"),
            None => Ok(()),
        }
    }
}

/// The loss and the gradient of every particle.
pub struct Evaluation {
    /// The mean minibatch loss of each particle, `[n]`.
    pub losses: Tensor,
    /// The gradient of each particle's own loss, `[n, P]`.
    pub gradients: Tensor,
}

impl Evaluation {
    /// Returns sums of nothing for `theta: [n, P]`, with losses in f32 as those of batches are.
    pub fn zero(theta: &Tensor) -> Evaluation {
        Evaluation {
            losses: Tensor::zeros([theta.size()[0]], (Kind::Float, theta.device())),
            gradients: theta.zeros_like(),
        }
    }
}

/// Losses and gradients, and the further numbers that an [`Extra`] asks for.
pub struct Extended {
    pub own: Evaluation,
    /// The squares, the gradients with respect to the noise, or the mixed gradients, `[n, P]`.
    pub extra: Tensor,
}

/// An output of the network on the batch of a step, for all particles, and the labels.
pub struct Outputs {
    /// The output, `[n, B, C]`.
    pub values: Tensor,
    /// The labels, `[n, B]`.
    pub labels: Tensor,
}

/// The answer to a [`Request`].
pub enum Answer {
    Losses(Evaluation),
    Extended(Extended),
    Outputs(Outputs),
    /// Gradients `[n, P]`.
    Gradients(Tensor),
}

const OTHER: &str = "the objective answered another request than the method's";

impl Answer {
    /// Returns the losses and gradients.
    ///
    /// # Errors
    /// Fails if this is the answer to another request, as the three others do.
    pub fn evaluation(self) -> Result<Evaluation> {
        if let Answer::Losses(found) = self { Ok(found) } else { Err(anyhow!(OTHER)) }
    }

    /// Returns the losses and gradients, with the values that an [`Extra`] has asked for.
    pub fn extended(self) -> Result<Extended> {
        if let Answer::Extended(found) = self { Ok(found) } else { Err(anyhow!(OTHER)) }
    }

    pub fn outputs(self) -> Result<Outputs> {
        if let Answer::Outputs(found) = self { Ok(found) } else { Err(anyhow!(OTHER)) }
    }

    /// Returns the gradients that were pulled back.
    pub fn gradients(self) -> Result<Tensor> {
        if let Answer::Gradients(found) = self { Ok(found) } else { Err(anyhow!(OTHER)) }
    }
}

impl From<Evaluation> for Answer {
    fn from(found: Evaluation) -> Answer {
        Answer::Losses(found)
    }
}

impl From<Extended> for Answer {
    fn from(found: Extended) -> Answer {
        Answer::Extended(found)
    }
}

impl From<Outputs> for Answer {
    fn from(found: Outputs) -> Answer {
        Answer::Outputs(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain;

    impl Objective for Plain {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let theta = request.plain()?;
            Ok(Evaluation { losses: theta.select(1, 0), gradients: theta.copy() }.into())
        }
    }

    #[test]
    fn a_refusal_names_what_was_requested() {
        let theta = Tensor::from_slice(&[1f32, 2.0]).view([1, 2]);
        assert_eq!(Plain.losses_of_part(&theta, 3).unwrap().gradients, theta);
        let text = |request: Request| Plain.evaluate(&request).err().expect("an error").to_string();
        assert_eq!(
            text(Request::losses(&theta).on_part(1).with(Extra::Squares)),
            "this batch cannot give losses and gradients with squared gradients of single images on part 1 of the batch: \
             it knows losses and their gradients only"
        );
        let pulled = Plain.pull_back(&theta, Output::Features, &theta).unwrap_err().to_string();
        assert!(pulled.contains("pulled back from the features that enter the head:"), "{pulled}");
        let noise = FactorNoise { noise: &theta, seed: 1, step: 2 };
        assert!(text(Request::losses(&theta).with(Extra::Noise(noise))).contains("with noise in low-rank factors: "));
        let refused = Plain.evaluate(&Request::losses(&theta).with(Extra::Squares)).err().expect("an error");
        assert!(advised(refused, "set a = 1").to_string().ends_with("gradients only: set a = 1"));
        assert_eq!(advised(anyhow!("other"), "set a = 1").to_string(), "other");
        assert!(Answer::Gradients(theta).evaluation().is_err());
    }
}
