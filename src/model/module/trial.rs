//! The trial of a module on random samples, which shows what its output is and whether its last operation is a classifier.

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use tch::{Device, Kind, Tensor, no_grad};

use crate::base::random::{Purpose, stream};
use crate::base::tensor::is_finite;
use crate::machine::memory::allocated_bytes;
use crate::model::module::intake::{Copies, Source, frozen};
use crate::model::module::{Texts, Tokenizer};
use crate::model::network::{Parameters, Weights};
use crate::model::recognition::identify::compare;
use crate::model::vit::OwnHead;

/// The largest relative difference between the classifier on the features and the module's own output.
const MAX_DIFFERENCE: f64 = 1e-5;

/// The largest relative difference between a sample alone and the same sample in a batch. Products of other sizes round
/// differently.
const MAX_BATCH_DIFFERENCE: f64 = 1e-3;

/// The largest number of layers that are tried as the classifier.
const TRIED: usize = 4;

/// The tokens of the longest text of a trial's batch, where the encoder reads as many.
const TOKENS: i64 = 12;

/// A parameter of the module as particles see it.
pub struct Named {
    /// The name in the archive.
    pub stored: String,
    /// The name among the parameters that particles train. Tied ones have one name.
    pub name: String,
    pub tensor: Tensor,
}

/// The random samples of a trial.
pub struct Samples {
    /// A batch `[B, …]`.
    batch: Tensor,
    /// Each sample of the batch alone, `[1, …]`, without its padding.
    alone: Vec<Tensor>,
    /// The samples whose memory is measured, which are as large as samples may be.
    largest: Tensor,
}

impl Samples {
    /// Returns the batch `[B, …]`.
    pub fn batch(&self) -> &Tensor {
        &self.batch
    }

    /// Takes samples of one size: images `[B, 3, S, S]`, or rows of numbers `[B, F]`.
    pub fn of_one_size(batch: Tensor) -> Samples {
        let alone = (0..batch.size()[0]).map(|sample| batch.narrow(0, sample, 1)).collect();
        Samples { alone, largest: batch.shallow_clone(), batch }
    }

    /// Makes texts of different lengths, of tokens up to `largest`, which occurs.
    pub fn of_texts(texts: &Texts, largest: i64) -> Samples {
        let mut rng = stream(0, Purpose::Check, &[]);
        let longest = TOKENS.min(texts.tokens);
        let mut text = |length: i64, longest: i64| {
            let mut ids: Vec<i64> = (0..length).map(|_| rng.random_range(0..=largest)).collect();
            ids[0] = largest;
            of_ids(texts, &ids, longest)
        };
        let lengths = [longest, (2 * longest / 3).max(1), (longest / 3).max(1)];
        let all: Vec<Tensor> = lengths.iter().map(|length| text(*length, longest)).collect();
        let alone = all.iter().zip(lengths).map(|(text, length)| text.narrow(2, 0, length)).collect();
        Samples { batch: Tensor::cat(&all, 0), alone, largest: text(texts.tokens, texts.tokens) }
    }
}

/// Returns a text as it is stored, `[1, 2 or 3, T]`, filled up to `longest` tokens. The second half is of the second kind.
fn of_ids(texts: &Texts, ids: &[i64], longest: i64) -> Tensor {
    let (length, empty) = (ids.len() as i64, Tensor::zeros([longest - ids.len() as i64], (Kind::Int64, Device::Cpu)));
    let kinds = Tensor::arange(length, (Kind::Int64, Device::Cpu)).ge(length / 2 + 1).to_kind(Kind::Int64);
    let rows = [Tensor::from_slice(ids), Tensor::ones([length], (Kind::Int64, Device::Cpu)), kinds];
    let filled: Vec<Tensor> = rows.iter().take(texts.inputs).map(|row| Tensor::cat(&[row, &empty], 0)).collect();
    Tensor::stack(&filled, 0).unsqueeze(0).to_kind(Kind::Int)
}

/// The parameters of a module and the random samples on which it is tried.
pub struct Trial {
    pub parameters: Vec<Named>,
    pub samples: Samples,
}

impl Trial {
    /// Returns the sources of all parameters, with the identity in place of `classifier`.
    pub fn sources(&self, classifier: Option<&Classifier>) -> Vec<Source> {
        let source = |parameter: &Named| match classifier.and_then(|classifier| classifier.constant(parameter)) {
            Some(constant) => Source::Constant(constant),
            None => Source::Parameter(parameter.name.clone()),
        };
        self.parameters.iter().map(source).collect()
    }

    fn all(&self) -> Parameters {
        let mut all: Vec<(String, Tensor)> = Vec::new();
        for Named { name, tensor, .. } in &self.parameters {
            if all.iter().all(|(known, _)| known != name) {
                all.push((name.clone(), tensor.shallow_clone()));
            }
        }
        frozen(&all)
    }

    /// Returns the parameters that `copies` read.
    pub fn base(&self, copies: &Copies) -> Parameters {
        let read = copies.names();
        let all = self.all();
        let kept = all.all().iter().filter(|(name, _)| read.contains(&name.as_str()));
        frozen(&kept.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect::<Vec<_>>())
    }

    fn run(&self, copies: &Copies, samples: &Tensor) -> Result<Tensor> {
        let base = self.all();
        no_grad(|| copies.forward(0, &copies.intake().samples(samples), &Weights::frozen(&base), None))
    }

    /// Checks that a module knows the tokens of its tokenizer, and that it reads as many as it shall.
    ///
    /// # Errors
    /// Fails if it does not.
    pub fn check_tokens(&self, copies: &Copies, tokenizer: &Tokenizer) -> Result<()> {
        let (Some(first), tokens) = (self.samples.alone.first(), tokenizer.tokens) else { return Ok(()) };
        // Small numbers are in every vocabulary.
        let small = first.minimum(&Tensor::from(1i32));
        let _ = self.run(copies, &small).with_context(|| {
            format!(
                "its forward fails on a text of {} tokens; scripts/export_text_encoder.py exports encoders for any length",
                first.size()[2]
            )
        })?;
        let _ = self.run(copies, first).with_context(|| {
            format!(
                "its forward fails on the token numbered {}, which {} has: they are not of one model",
                tokenizer.largest,
                tokenizer.path().display()
            )
        })?;
        let _ = self.run(copies, &self.samples.largest).with_context(|| {
            format!(
                "its forward fails on {tokens} tokens, so its positions do not reach that far: set checkpoint.max_tokens to \
                 what it reads"
            )
        })?;
        Ok(())
    }

    /// Returns the module's output `[B, k]` for all samples.
    ///
    /// # Errors
    /// Fails if the module does not run on such samples, if its output is not a vector per sample, or if it depends on the
    /// other samples of a batch.
    pub fn output(&self, copies: &Copies) -> Result<Tensor> {
        let (size, sample) = (self.samples.batch.size(), copies.intake().sample());
        let what = match size[..] {
            [count, _, height, width] => format!("{count} images of {height} x {width} pixels (checkpoint.image_size)"),
            [count, _, tokens] => format!("{count} texts of up to {tokens} tokens"),
            _ => format!("{} rows of {} numbers (checkpoint.inputs)", size[0], size[size.len() - 1]),
        };
        let output = self.run(copies, &self.samples.batch).with_context(|| format!("its forward fails on {what}"))?;
        let vector = output.dim() >= 2 && output.size()[0] == size[0] && output.size()[2..].iter().all(|one| *one == 1);
        ensure!(
            vector && output.kind() == Kind::Float,
            "its forward returns {:?} of {:?} for {} {sample}s, not one vector of f32 per {sample}: export it with its pooling, \
             and with a classifier or without",
            output.kind(),
            output.size(),
            size[0]
        );
        ensure!(is_finite(&output), "its output for random {sample}s is NaN or infinite");
        let alone = self.samples.alone.iter().map(|sample| self.run(copies, sample)).collect::<Result<Vec<Tensor>>>();
        let alone = alone.with_context(|| {
            let known = if sample == "text" { "the length of its texts" } else { "its batch size" };
            format!("its forward knows {known}: export it by torch.jit.script, or trace it without gradients")
        })?;
        let difference = compare(&Tensor::cat(&alone, 0).flatten(1, -1), &output.flatten(1, -1)).relative;
        let padding = if sample == "text" { "its padding and " } else { "" };
        ensure!(
            difference <= MAX_BATCH_DIFFERENCE,
            "the output for {} {sample} changes by {difference:.1e} with {padding}the other {sample}s of its batch, or from call to call: \
             it was exported in training mode{}; call model.eval() first",
            if sample == "image" { "an" } else { "a" },
            if sample == "text" {
                ", knows a length, or does not use the mask"
            } else {
                ", or writes into its input or weights"
            }
        );
        Ok(output.flatten(1, -1))
    }

    /// Finds the classifier and puts the identity in its place; `None` if the last operation is another one.
    pub fn classifier(&self, copies: &mut Copies, output: &Tensor) -> Result<Option<OwnHead>> {
        let classes = output.size()[1];
        let candidates = self.parameters.iter().rev().filter_map(|parameter| self.candidate(parameter, classes));
        for candidate in candidates.take(TRIED) {
            copies.set_sources(self.sources(Some(&candidate)));
            let fits = |features: Tensor| {
                let features = features.flatten(1, -1);
                features.size()[1] == candidate.head.weight.size()[1] && {
                    let again = features.linear(&candidate.head.weight, Some(&candidate.head.bias));
                    compare(&again, output).relative <= MAX_DIFFERENCE
                }
            };
            // A layer in the middle of the network has no room for the identity, and the module may fail.
            if self.run(copies, &self.samples.batch).is_ok_and(fits) {
                return Ok(Some(candidate.head));
            }
        }
        copies.set_sources(self.sources(None));
        Ok(None)
    }

    /// Returns the linear layer whose weight this is, if it has as many outputs as the module.
    fn candidate(&self, parameter: &Named, classes: i64) -> Option<Classifier> {
        let layer = parameter.stored.strip_suffix("weight")?;
        let size = parameter.tensor.size();
        let fits = matches!(size[..], [rows, _] | [rows, _, 1, 1] if rows == classes);
        let is_tied = self.parameters.iter().filter(|other| other.name == parameter.name).count() > 1;
        if !fits || is_tied {
            return None;
        }
        let bias = self.parameters.iter().find(|other| other.stored == format!("{layer}bias"));
        let zeros = || Tensor::zeros([classes], (Kind::Float, Device::Cpu));
        let (weight, bias) = (parameter.tensor.flatten(1, -1), bias.map_or_else(zeros, |b| b.tensor.shallow_clone()));
        Some(Classifier { layer: layer.to_string(), axes: size.len(), head: OwnHead { weight, bias } })
    }

    /// Returns the bytes that a graph of one sample keeps, measured on the CPU; 0 where the system does not tell.
    pub fn kept_bytes(&self, copies: &Copies) -> Result<u64> {
        let base = self.all();
        let weights = Weights::frozen(&base);
        let samples = self.samples.largest.shallow_clone();
        // The graph reaches down to the pixels, so that it keeps what an attack needs, too. Weights that particles train
        // add nothing but the copies of the weights, since the inputs of layers are kept for either.
        let samples = if samples.is_floating_point() { samples.set_requires_grad(true) } else { samples };
        let (count, samples) = (samples.size()[0], copies.intake().samples(&samples));
        let mut own = Weights::frozen(&base);
        for (name, tensor) in base.all() {
            own.replace(name, tensor.unsqueeze(0).set_requires_grad(true));
        }
        drop(tch::with_grad(|| copies.forward(0, &samples, &own, Some(0)))?);
        let before = allocated_bytes();
        let output = tch::with_grad(|| copies.forward(0, &samples, &own, Some(0)))?;
        let after = allocated_bytes();
        drop(output);
        let _ = no_grad(|| copies.forward(0, &samples, &weights, None))?;
        let kept = before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before));
        Ok(kept / count as u64)
    }
}

/// A layer that may be the module's last operation.
pub struct Classifier {
    /// The name of the layer in the archive, with a dot at the end.
    layer: String,
    /// The number of axes of its weight: two, or four of a 1 × 1 convolution.
    axes: usize,
    head: OwnHead,
}

impl Classifier {
    /// Returns what stands in place of one of its parameters, so that its output is its input; `None` for a parameter
    /// of another layer.
    fn constant(&self, parameter: &Named) -> Option<Tensor> {
        let width = self.head.weight.size()[1];
        let options = (Kind::Float, Device::Cpu);
        match parameter.stored.strip_prefix(&self.layer)? {
            "weight" if self.axes == 2 => Some(Tensor::eye(width, options)),
            "weight" => Some(Tensor::eye(width, options).view([width, width, 1, 1])),
            "bias" => Some(Tensor::zeros([width], options)),
            _ => None,
        }
    }
}
