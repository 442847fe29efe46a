//! The models of a run that leave bella: particles, draws or their soup.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tch::{Device, Kind, Tensor, no_grad};

use super::expected::Expected;
use super::lora::updates;
use super::{config, expected};
use crate::base::tensor::is_zero;
use crate::experiment::Experiment;
use crate::machine::Chunk;
use crate::model::folder::{has_weights, home};
use crate::model::head::Training;
use crate::model::language::{EMBEDDING, OUTPUT};
use crate::model::network::Slot;
use crate::predict::{Members, Predictor};
use crate::session::Session;
use crate::subspace::Subspace;

/// The name of an archive that is written again.
pub const ARCHIVE: &str = "model.pt";

/// Models as rows of theta, with the run that they are from.
pub struct Outgoing<'a> {
    pub experiment: &'a Experiment,
    pub session: &'a Session,
    pub subspace: &'a dyn Subspace,
    /// The models, `[k, P]`.
    pub theta: &'a Tensor,
    /// The weights of the models in every average, which sum to 1; `None` if all weigh the same.
    pub weights: Option<Vec<f64>>,
    /// The folder of each model; one model alone needs none.
    pub names: Vec<String>,
}

/// The classifier of one model, f32 on the CPU.
pub struct HeadOf {
    /// The weight, `[C, d]`.
    pub weight: Tensor,
    /// The bias, `[C]`.
    pub bias: Tensor,
    /// Whether this model has its own.
    pub trained: bool,
    /// Whether features are L2-normalised before it.
    pub normalised: bool,
}

impl HeadOf {
    /// Returns whether a model has trained it, and a layer without a bias computes the same.
    pub fn fits_without_bias(&self) -> bool {
        self.trained && !self.normalised && is_zero(&self.bias)
    }
}

fn on_host(tensor: &Tensor) -> Tensor {
    tensor.detach().to_device(Device::Cpu).to_kind(Kind::Float).contiguous()
}

impl Outgoing<'_> {
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the folder of a model below `folder`.
    pub fn folder(&self, folder: &Path, model: usize) -> std::path::PathBuf {
        if self.count() == 1 { folder.to_path_buf() } else { folder.join(&self.names[model]) }
    }

    pub fn checkpoint(&self) -> &Path {
        &self.experiment.checkpoint.path
    }

    /// Returns what packages load: the checkpoint, or of a network of texts the folder that holds its file.
    pub fn source(&self) -> PathBuf {
        match self.experiment.checkpoint.kind.entry().is_folder {
            true => home(self.checkpoint()),
            false => self.checkpoint().to_path_buf(),
        }
    }

    /// Returns whether a trained output matrix that the checkpoint ties to the embeddings is another one now.
    pub fn unties(&self, model: usize) -> bool {
        let name = format!("{OUTPUT}.weight");
        self.session.model.base.first_name(&name) != name && self.value(model, &name).is_some()
    }

    /// Returns whether the checkpoint is a TorchScript archive with a forward pass of its own.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn is_archive(&self) -> Result<bool> {
        Ok(!has_weights(self.checkpoint())?)
    }

    /// Returns the number of pixels per side.
    pub fn image_size(&self) -> Result<i64> {
        Ok(self.session.model.images()?.size())
    }

    /// Returns whether the network may have been brought to another image size than its own.
    pub fn is_resized(&self) -> bool {
        self.experiment.checkpoint.image_size.or(self.experiment.checkpoint.usual.image_size).is_some()
    }

    /// Returns the width of the network, which is that of the features or half of it.
    pub fn width(&self) -> i64 {
        let model = &self.session.model;
        model.base.get("patch.weight").map_or_else(|| model.network.feature_width(), |patch| patch.size()[0])
    }

    pub fn row(&self, model: usize) -> Tensor {
        self.theta.narrow(0, model as i64, 1)
    }

    /// Returns the slots of the network by which low-rank updates are named.
    pub fn slot(&self, layer: &str) -> Result<Slot> {
        let found = self.session.model.network.slots().into_iter().find(|slot| slot.name == layer);
        found.with_context(|| format!("the network has no layer {layer}"))
    }

    pub fn is_gated(&self) -> bool {
        self.session.model.base.get("blocks.0.mlp.gate.weight").is_some()
    }

    /// Returns the classifier of a model.
    pub fn head(&self, model: usize) -> HeadOf {
        let head = &self.session.model.head;
        match (self.own(model, "head.weight"), self.own(model, "head.bias")) {
            (Some(weight), Some(bias)) => HeadOf { weight, bias, trained: true, normalised: head.normalised },
            _ => HeadOf {
                weight: on_host(&head.weight),
                bias: on_host(&head.bias),
                trained: false,
                normalised: head.normalised,
            },
        }
    }

    /// Returns whether the head of a model is its network's own output matrix, or rows of it.
    pub fn head_is_output(&self, head: &HeadOf) -> bool {
        !head.trained && matches!(self.session.model.head.training, Training::OfNetwork | Training::Tokens)
    }

    /// Returns the trained value of a canonical parameter in one model, f32 on the CPU, with its low-rank update added; `None`
    /// for a frozen one that is the checkpoint's. A quantised weight counts as changed: its value is the numbers that the model computes with.
    pub fn value(&self, model: usize, name: &str) -> Option<Tensor> {
        let (base, row) = (&self.session.model.base, self.row(model));
        if let Some(layer) = name.strip_suffix(".weight")
            && let Some((_, update)) = updates_of(self.subspace.layout(), &row, layer)
            && self.subspace.scaled_by().is_none()
        {
            let (a, b) = (update.a.to_kind(Kind::Double), update.b.to_kind(Kind::Double));
            let frozen = base.value(name)?.to_device(Device::Cpu).to_kind(Kind::Double);
            // The weight of a 1 × 1 convolution has two more axes.
            let change = (b.matmul(&a) * update.scale).view_as(&frozen);
            return Some((frozen + change).to_kind(Kind::Float));
        }
        let quantised = || base.value(name).filter(|_| base.is_quantised(name)).map(|numbers| on_host(&numbers));
        self.own(model, name).or_else(quantised)
    }

    /// Returns the parameter that takes the place of the checkpoint's in one model, f32 on the CPU; `None` for one that keeps
    /// it, or adds a low-rank update to it. Rows of trained lengths make it another one. Not every such parameter is a column: a head follows from its texts' projection.
    pub fn own(&self, model: usize, name: &str) -> Option<Tensor> {
        let leaves = self.subspace.layout().leaves(&self.row(model), Kind::Float, false);
        let weights = self.subspace.weights(&self.session.model.base, &leaves);
        let scaled = || weights.of_particle(name, 0).filter(|_| self.subspace.scaled_by().is_some());
        weights.own(name).map(|own| own.squeeze_dim(0)).or_else(scaled).map(|own| on_host(&own))
    }

    /// Returns a few samples, of the network's own image size if it sees images, and the logits of every model.
    ///
    /// # Errors
    /// Fails if prediction fails.
    pub fn expected(&self) -> Result<Expected> {
        self.expected_of(None)
    }

    /// Returns the same of images of another `[height, width]`, which bella resizes.
    ///
    /// # Errors
    /// Fails as [`expected`](Self::expected) does.
    pub fn expected_of(&self, size: Option<[i64; 2]>) -> Result<Expected> {
        let model = &self.session.model;
        let vocabulary = model.base.get(&format!("{EMBEDDING}.weight")).map_or(1, |table| table.size()[0]);
        let samples = model.preparation.example(vocabulary, size);
        let samples = samples.context("this network takes samples whose form is not known")?;
        let members = Members::Rows { subspace: self.subspace, rows: self.theta };
        let predictor = Predictor::new(model, members, Chunk::Auto);
        no_grad(|| Expected::of(&*self.experiment.task, &predictor, samples))
    }

    /// Returns the config of the checkpoint's folder; `None` for an archive.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn config(&self) -> Result<Option<Value>> {
        if self.checkpoint().is_dir() { config::read(self.checkpoint()).map(Some) } else { Ok(None) }
    }

    /// Writes the head of a model beside it.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write_head(&self, model: usize, folder: &Path) -> Result<()> {
        let HeadOf { weight, bias, normalised, .. } = self.head(model);
        expected::write_head([&weight, &bias], normalised, folder)
    }

    /// Checks that the particles are low-rank updates.
    ///
    /// # Errors
    /// Fails if they are not.
    pub fn expect_low_rank(&self) -> Result<()> {
        let low_rank = !updates(self.subspace.layout(), &self.row(0).squeeze_dim(0)).is_empty();
        ensure!(
            low_rank,
            "adapters are low-rank updates, which this run has none of: export whole models by --to weights"
        );
        Ok(())
    }
}

/// Returns the update of one layer.
fn updates_of(layout: &crate::subspace::Layout, row: &Tensor, layer: &str) -> Option<(String, super::lora::Lora)> {
    let block = layout.blocks.iter().find(|block| block.name == layer)?;
    let one = crate::subspace::Layout { columns: Vec::new(), blocks: vec![block.clone()] };
    updates(&one, &row.squeeze_dim(0)).pop()
}
