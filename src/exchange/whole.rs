//! A whole posterior in one file: what the network takes in; the logits `[members, B, C]` of every model, their mean probabilities
//! `[B, C]` and their mutual information `[B]` out.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tch::Kind;

use crate::base::small::Usage;
use crate::exchange::expected::Expected;
use crate::exchange::format::Together;
use crate::exchange::graph::build;
use crate::exchange::graph::members::{Bytes, Inputs, Leaving, Pixels, Preparing};
use crate::exchange::outgoing::Outgoing;
use crate::posterior::description::Preprocessing;
use crate::schema::words;

words! {
    /// The type of the numbers in a file of a whole posterior. Logits are f32 in each.
    pub enum Numbers { F32 = "f32", F16 = "f16", Bf16 = "bf16" }
}

impl Numbers {
    fn kind(self) -> Kind {
        match self {
            Numbers::F32 => Kind::Float,
            Numbers::F16 => Kind::Half,
            Numbers::Bf16 => Kind::BFloat16,
        }
    }
}

/// The type of the numbers in a file, and whether it prepares images.
#[derive(Clone, Copy)]
pub struct Form {
    pub numbers: Numbers,
    /// Whether images are resized and normalised in it.
    pub prepares: bool,
}

/// The models as one graph.
pub struct Whole<'a> {
    outgoing: &'a Outgoing<'a>,
    form: Form,
    inputs: Box<dyn Inputs>,
}

impl<'a> Whole<'a> {
    /// Takes models whose network is written over operations.
    ///
    /// # Errors
    /// Fails for another network, or if images are to be prepared that the network does not take.
    pub fn of(outgoing: &'a Outgoing<'a>, form: Form) -> Result<Whole<'a>> {
        let model = &outgoing.session.model;
        ensure!(model.network.written().is_some(), "only networks that bella computes itself are exported as one file");
        let inputs: Box<dyn Inputs> = match (model.preparation.images(), form.prepares) {
            (Some(images), true) => {
                let normalize = outgoing.experiment.checkpoint.normalization()?;
                let preparing = Preparing { normalize, interpolation: images.interpolation() };
                Box::new(Bytes { side: images.size(), preparing })
            }
            (Some(images), false) => Box::new(Pixels { side: images.size() }),
            (None, true) => {
                bail!(Usage("--preprocess: is for networks of images; this one takes texts: leave it out".into()))
            }
            (None, false) => {
                let texts = model.preparation.texts();
                Box::new(texts.context("the form of this network's samples is not known")?)
            }
        };
        Ok(Whole { outgoing, form, inputs })
    }

    /// Returns samples that fill the graph's inputs, and the logits of every model.
    ///
    /// # Errors
    /// Fails if prediction fails.
    pub fn expected(&self) -> Result<Expected> {
        match self.inputs.tried_size() {
            Some(size) => self.outgoing.expected_of(Some(size)),
            None => self.outgoing.expected(),
        }
    }

    /// Writes all models as one file, with `expected.safetensors` beside it, into an existing folder.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(&self, format: &Together, expected: &Expected, folder: &Path) -> Result<()> {
        let network = self.outgoing.session.model.network.written().context("this network has no graph")?;
        let built = build(network, &Leaving::of(self.outgoing), &*self.inputs, self.form.numbers.kind());
        (format.write)(&built, &self.described()?, folder)?;
        expected.write_all(self.form.prepares, self.inputs.padded(), folder)
    }

    /// Returns the entries of a file's metadata.
    fn described(&self) -> Result<Vec<(&'static str, String)>> {
        let (outgoing, model) = (self.outgoing, &self.outgoing.session.model);
        let mut described = vec![
            ("members", json!(outgoing.names).to_string()),
            ("classes", json!(outgoing.session.classes).to_string()),
        ];
        if let Some(images) = model.preparation.images() {
            let preprocessing = Preprocessing::new(images.size(), &outgoing.experiment.checkpoint)?;
            described.push(("preprocessing", serde_json::to_string(&preprocessing)?));
        }
        Ok(described)
    }

    /// Returns the names of the inputs of the file, in their order.
    pub fn inputs(&self) -> &'static [&'static str] {
        self.inputs.names()
    }
}
