//! Corruptions that bella generates itself, for sets without a published corrupted version. They are written from the
//! definitions of Hendrycks and Dietterich (2019) with similar constants. Results on them are not results on
//! CIFAR-10-C.

mod blur;
mod color;
mod digital;
mod noise;
mod picture;

use std::fmt;

use anyhow::{Context, Result, ensure};

use crate::base::random::{Purpose, stream};
pub use picture::Corruption;
use picture::Picture;

/// All corruptions in the order in which they are listed.
pub static CORRUPTIONS: &[&Corruption] = &[
    &noise::GAUSSIAN,
    &noise::SHOT,
    &noise::IMPULSE,
    &noise::SPECKLE,
    &blur::GAUSSIAN,
    &color::CONTRAST,
    &color::BRIGHTNESS,
    &color::SATURATE,
    &digital::PIXELATE,
    &digital::JPEG,
];

/// A corruption with its severity and seed, which together determine its result.
#[derive(Clone, Copy)]
pub struct Applied {
    corruption: &'static Corruption,
    severity: usize,
    seed: u64,
}

impl Corruption {
    /// Returns this corruption at `severity`.
    ///
    /// # Errors
    /// Fails if the severity is not from 1 to 5.
    pub fn at(&'static self, severity: usize, seed: u64) -> Result<Applied> {
        ensure!((1..=5).contains(&severity), "{}:{severity}: the severity must be from 1 to 5", self.key);
        Ok(Applied { corruption: self, severity, seed })
    }
}

impl Applied {
    /// Parses text such as `gaussian-noise:3`. The noise is a function of `seed` and the image's index.
    ///
    /// # Errors
    /// Fails if there is no severity, the severity is not from 1 to 5, or the name is unknown.
    pub fn parse(text: &str, seed: u64) -> Result<Applied> {
        let form = "write a name and a severity, such as gaussian-noise:3";
        let (key, severity) = text.split_once(':').with_context(|| format!("corruption `{text}`: {form}"))?;
        let found = CORRUPTIONS.iter().find(|corruption| corruption.key == key);
        let corruption = found.with_context(|| {
            let known: Vec<&str> = CORRUPTIONS.iter().map(|corruption| corruption.key).collect();
            format!("unknown corruption `{key}`; known: {}", known.join(", "))
        })?;
        let severity = severity.parse().ok().filter(|severity| (1..=5).contains(severity));
        let severity = severity.with_context(|| format!("corruption `{text}`: the severity must be from 1 to 5"))?;
        Ok(Applied { corruption, severity, seed })
    }

    /// Returns the name of the corruption.
    pub fn key(&self) -> &'static str {
        self.corruption.key
    }

    /// Returns the severity, from 1 to 5.
    pub fn severity(&self) -> u8 {
        self.severity as u8
    }

    /// Corrupts image number `index` of its split in place. `pixels: [3, height, width]`.
    ///
    /// # Errors
    /// Fails if a codec cannot hold the image (JPEG: 65,535 pixels on a side).
    pub fn apply(&self, pixels: &mut [u8], height: usize, width: usize, index: u32) -> Result<()> {
        let mut rng = stream(self.seed, Purpose::Corruption, &[u64::from(index)]);
        (self.corruption.apply)(&mut Picture { pixels, height, width }, self.severity, &mut rng)
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.corruption.key, self.severity)
    }
}

impl fmt::Debug for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} (seed {})", self.seed)
    }
}

#[cfg(test)]
mod tests;
