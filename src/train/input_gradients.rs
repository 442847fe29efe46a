//! The gradients of the logits of images' labels with respect to their prepared pixels, and what is pulled back from them, which is a
//! gradient of gradients: passes run by operations that libtorch can differentiate twice.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor, with_grad};

use super::gradient::Pass;
use super::likelihood::Likelihood;
use super::passes::Own;
use crate::data::fields::{Fields, PIXELS};
use crate::methods::{Output, Outputs, Request, Target};
use crate::model::network::Weights;
use crate::model::{Input, Model};
use crate::predict::in_parts;

const NO_PIXELS: &str = "the samples are no images alone";
const OWN_FORWARD: &str = "the network has a forward of its own, which may not be differentiated twice";
const ENTERING: &str = "the first blocks are cached, and pixels do not enter: set train.prefix_cache = \"off\"";
const RECOMPUTED: &str =
    "activations are recomputed, which keeps no graph down to the pixels: leave train.recompute out";
const MAGNIFIED: &str = "train.precision = \"f16\" scales losses: use \"bf16\" or \"f32\"";

impl Likelihood<'_> {
    /// Returns an error unless gradients by pixels can be computed, where they are requested.
    pub(super) fn check_input_gradients(&self, request: &Request) -> Result<()> {
        let (Target::Output(Output::InputGradients) | Target::PullBack(Output::InputGradients, _)) = request.target
        else {
            return Ok(());
        };
        ensure!(!matches!(self.input, Input::Entering(..)), request.refused(ENTERING));
        ensure!(self.model.network.written().is_some(), request.refused(OWN_FORWARD));
        ensure!(!self.passes.recompute, request.refused(RECOMPUTED));
        ensure!(self.magnified == 1.0, request.refused(MAGNIFIED));
        let one = self.model.prepared(&self.any_sample())?;
        let names: Vec<&str> = one.names().collect();
        ensure!(names == [PIXELS], request.refused(NO_PIXELS));
        Ok(())
    }

    /// Returns a sample of zeros in the shape of those of the batch, of which a process of several may have none.
    fn any_sample(&self) -> Input {
        self.input.map(|t| Tensor::zeros([&[1, 1], &t.size()[2..]].concat(), (t.kind(), t.device())))
    }

    /// Returns the gradients for rows of theta and all samples of this process, `[k, b, D]`.
    pub(super) fn input_gradients_of(&self, theta: &Tensor) -> Result<Outputs> {
        let (layout, rows) = (self.subspace.layout(), theta.size()[0]);
        let labels = self.labels.expand([rows, -1], false);
        let width = self.model.prepared(&self.any_sample())?.first().numel() as i64;
        let all = Tensor::zeros([rows, self.labels.size()[1], width], (Kind::Float, theta.device()));
        let all = if self.model.kind == Kind::Double { all.to_kind(Kind::Double) } else { all };
        self.chunker.clamp(rows as usize);
        self.chunker.run(|size| {
            for some in in_parts(0..rows as usize, size.members) {
                let (start, count) = (some.start as i64, some.len() as i64);
                for samples in in_parts(0..labels.size()[1] as usize, size.images) {
                    let slice = self.slice(start, count, samples);
                    let pass = |own: &Own| {
                        let leaves = layout.leaves(&theta.narrow(0, start, count), self.model.kind, false);
                        let weights = self.subspace.weights(&self.model.base, &leaves).differentiated_twice();
                        let labels = slice.of(&labels);
                        with_grad(|| label_gradients(self.model, &weights, &own.input(), &labels, false))
                    };
                    let keep = |own: &Own, found: Tensor| {
                        let own = &own.slice;
                        all.narrow(0, own.start, own.count).narrow(1, own.from, own.samples).copy_(&found);
                    };
                    self.together(slice, &pass, &keep)?;
                }
            }
            Ok(())
        })?;
        Ok(Outputs { values: all, labels })
    }
}

impl Pass<'_> {
    /// Returns the product of the gradients by pixels with `by: [k, b, D]`, `[k]`, in a graph down to the leaves.
    pub(super) fn by_pixels(&self, by: &Tensor) -> Result<Tensor> {
        let slice = &self.slice;
        let labels = self.labels.expand([slice.count, -1], false);
        let gradients = label_gradients(self.model, &self.weights, &self.input, &labels, true)?;
        let by = by.narrow(0, slice.start, slice.count).narrow(1, slice.from, slice.samples);
        let kind = gradients.kind();
        Ok((gradients * by.to_kind(kind)).sum_dim_intlist([1i64, 2].as_slice(), false, kind))
    }
}

/// Returns the gradients `[k, b, D]` of the logits of labels `[k, b]` by the prepared pixels, in a graph if it is kept.
fn label_gradients(model: &Model, weights: &Weights, input: &Input, labels: &Tensor, keep: bool) -> Result<Tensor> {
    let (particles, samples) = labels.size2()?;
    let pixels = model.prepared(input)?.get(PIXELS).detach();
    let shape = [&[particles, samples], &pixels.size()[2..]].concat();
    let pixels = pixels.expand(&shape, false).contiguous().set_requires_grad(true);
    let features = model.network.forward(weights, &Fields::of(PIXELS, pixels.shallow_clone()));
    let logits = model.head.logits(weights, &features).expand([particles, -1, -1], false);
    let root = logits.gather(2, &labels.unsqueeze(2), false).sum(logits.kind());
    let found = Tensor::f_run_backward(&[root], &[&pixels], keep, keep)?.swap_remove(0);
    Ok(found.flatten(2, -1))
}
