//! A few images and what a model says of them, stored beside an export so that whoever loads it can compare.

use std::path::Path;

use anyhow::Result;
use rand::RngExt;
use tch::{Device, Kind, Tensor};

use crate::base::random::{Purpose, stream};
use crate::base::tensor_file::State;
use crate::machine::Chunk;
use crate::model::Input;
use crate::predict::{Members, Predictor};
use crate::session::Session;
use crate::subspace::Subspace;

/// The number of images.
const IMAGES: i64 = 4;

/// The name of the file.
pub const FILE: &str = "expected.safetensors";

/// Images and the logits of some models.
pub struct Expected {
    /// Images as they are stored, bytes `[B, 3, h, w]`.
    images: Tensor,
    /// Prepared images, `[B, 3, S, S]`.
    pixels: Tensor,
    /// The logits, `[k, B, C]`.
    logits: Tensor,
}

impl Expected {
    /// Predicts random images of `[height, width]` with the models `theta: [k, P]`.
    pub fn of(
        session: &Session,
        subspace: &dyn Subspace,
        theta: &Tensor,
        [height, width]: [i64; 2],
    ) -> Result<Expected> {
        let model = &session.model;
        let mut rng = stream(0, Purpose::Check, &[]);
        let bytes: Vec<u8> = (0..IMAGES * 3 * height * width).map(|_| rng.random_range(0..=255u8)).collect();
        let images = Tensor::from_slice(&bytes).view([IMAGES, 3, height, width]);
        let bytes = images.unsqueeze(0).to_device(model.device);
        let predictor = Predictor::new(model, Members::Rows { subspace, rows: theta }, Chunk::Auto);
        let cutter = predictor.plan(IMAGES as usize, IMAGES as usize)?;
        let input = Input::Stored(bytes);
        let logits = predictor.logits(&cutter, &input)?;
        let pixels = model.prepared(&input)?.squeeze_dim(0);
        let host = |t: Tensor| t.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
        Ok(Expected { images, pixels: host(pixels), logits: host(logits) })
    }

    /// Writes `expected.safetensors`: `pixels` `[B, 3, S, S]` as the network takes them, and `logits` `[B, C]` of one model.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&self, model: usize, folder: &Path) -> Result<()> {
        self.state(&self.logits.get(model as i64)).write(&folder.join(FILE))
    }

    /// Writes the same with the logits `[k, B, C]` of all models; `images` are bytes `[B, 3, h, w]`, if asked for.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write_all(&self, with_images: bool, folder: &Path) -> Result<()> {
        let mut state = self.state(&self.logits);
        if with_images {
            state.put("images", &self.images);
        }
        state.write(&folder.join(FILE))
    }

    fn state(&self, logits: &Tensor) -> State {
        let mut state = State::default();
        state.put("pixels", &self.pixels);
        state.put("logits", logits);
        state
    }
}
