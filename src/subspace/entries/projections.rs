//! `[subspace.projections]`: the last linear layers of a zero-shot model: the projection of the image tower and that of the
//! text tower, whose embeddings are the classifier. Their biases stay as they are.

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::wide;
use crate::model::head::{Head, Texts, Training};
use crate::model::network::{Network, Parameters, Weights};
use crate::model::vit::text::PROJECTION;
use crate::schema::{settings, words};
use crate::subspace::{Combined, Entry, Layout, Shape, Subspace, SubspaceSpec, updates};

pub static ENTRY: Entry = Entry {
    key: "projections",
    about: "the projections of the image tower and of the text tower of a zero-shot model",
    read: |reader| Box::new(Spec::read(reader)),
};

words! {
    /// The towers whose projections are columns.
    pub enum Modalities { Both = "both", Image = "image" }
}

settings! {
    struct Spec {
        /// Towers whose projections are trained: both, or the image tower alone, where the head is a ready file.
        modalities: Modalities = Modalities::Both;
    }
}

impl Spec {
    /// Returns the texts of the head, if their projection is trained.
    fn texts(&self, head: &Head) -> Result<Option<Texts>> {
        if self.modalities == Modalities::Image {
            return Ok(None);
        }
        let texts = head.to(Device::Cpu, Kind::Float).texts;
        texts.map(Some).context(
            "subspace.projections: head.zero-shot.weights is a ready head, whose texts and text projection are not known: \
             leave it out, so that the checkpoint's own text tower makes the head, or set \
             subspace.projections.modalities = \"image\"",
        )
    }
}

impl SubspaceSpec for Spec {
    fn equal_starts(&self, _: Training) -> bool {
        true
    }

    fn build(&self, network: &dyn Network, base: &Parameters, head: &Head) -> Result<Box<dyn Subspace>> {
        ensure!(
            head.normalised,
            "subspace.projections: the cosine of images and texts needs a zero-shot head: use [head.zero-shot]"
        );
        let layer = network.projection(base).context(
            "subspace.projections: the checkpoint's image tower has no projection that bella knows: use that of CLIP or \
             SigLIP",
        )?;
        let weight = base.get(&format!("{layer}.weight")).context("the projection has no weight")?;
        let weight = weight.to_device(Device::Cpu).to_kind(Kind::Float);
        let texts = self.texts(head)?;
        let mut layout = Layout::default();
        push(&mut layout, layer, format!("{layer}.weight"), &weight)?;
        let mut start = vec![weight.reshape([-1])];
        if let Some(texts) = &texts {
            push(&mut layout, PROJECTION, PROJECTION.to_string(), &texts.projection)?;
            start.push(texts.projection.reshape([-1]));
        }
        let head = Head { texts, ..head.to(Device::Cpu, Kind::Float) };
        Ok(Box::new(Projections { layer, layout, start: Tensor::cat(&start, 0), head }))
    }
}

/// Appends a projection `[out, in]` as a block of its own.
fn push(layout: &mut Layout, block: &str, name: String, weight: &Tensor) -> Result<()> {
    let (outputs, inputs) = weight.size2()?;
    let start = layout.parameters();
    layout.push_linear(name, [outputs, inputs]);
    layout.close_block(block, start, Shape::Dense);
    Ok(())
}

struct Projections {
    /// The projection of the image tower.
    layer: &'static str,
    layout: Layout,
    /// The projections of the checkpoint, flattened.
    start: Tensor,
    /// The head of the checkpoint, with its texts if their projection is trained.
    head: Head,
}

impl Subspace for Projections {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, _: u64, _: u64) -> Result<Tensor> {
        Ok(self.start.copy())
    }

    /// Replaces both projections, and the head by the directions of the texts' embeddings at the same logit scale.
    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a> {
        let mut weights = Weights::frozen(base);
        weights.replace(&format!("{}.weight", self.layer), leaves[0].shallow_clone());
        if let (Some(_), Some(leaf)) = (&self.head.texts, leaves.get(1)) {
            weights.replace(PROJECTION, leaf.shallow_clone());
            let (kind, particles) = (wide(leaf.kind()), leaf.size()[0]);
            let head = self.head.to(leaf.device(), kind);
            let scale = norm(&head.weight);
            let embeddings = head.texts.as_ref().map(|texts| texts.embeddings(&leaf.to_kind(kind)));
            if let Some(embeddings) = embeddings {
                weights.replace("head.weight", &embeddings / norm(&embeddings) * scale);
                weights.replace("head.bias", head.bias.unsqueeze(0).expand([particles, -1], false));
            }
        }
        weights
    }

    fn projection(&self) -> Option<&'static str> {
        Some(self.layer)
    }

    fn origin(&self) -> Tensor {
        self.start.copy()
    }

    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined> {
        let theta = updates::around(&self.start, theta, coefficients)?;
        Ok(Combined { subspace: self.again(), theta })
    }

    fn again(&self) -> Box<dyn Subspace> {
        let (layout, start) = (self.layout.clone(), self.start.shallow_clone());
        Box::new(Projections { layer: self.layer, layout, start, head: self.head.again() })
    }
}

fn norm(rows: &Tensor) -> Tensor {
    rows.norm_scalaropt_dim(2.0, [-1], true)
}
