//! Corruptions that bella generates itself, for sets without a published corrupted version, by the definitions of Hendrycks and Dietterich
//! (2019) with the constants of CIFAR-10-C. Results on them are not results on CIFAR-10-C, whose draws of noise are others.
//!
//! Differs: values are rounded, where the authors' code cuts their fractions off.

mod kinds;

use std::fmt;

use anyhow::{Context, Error, Result};

use crate::base::random::{Purpose, stream};
use crate::schema::find;
pub use kinds::Corruption;
use kinds::Picture;

/// All corruptions in the order in which they are listed.
pub static CORRUPTIONS: &[&Corruption] = &[
    &kinds::GAUSSIAN_NOISE,
    &kinds::SHOT,
    &kinds::IMPULSE,
    &kinds::SPECKLE,
    &kinds::GAUSSIAN_BLUR,
    &kinds::CONTRAST,
    &kinds::BRIGHTNESS,
    &kinds::SATURATE,
    &kinds::PIXELATE,
    &kinds::JPEG,
];

/// A corruption with its severity and seed, which together determine its result.
#[derive(Clone, Copy)]
pub struct Applied {
    corruption: &'static Corruption,
    severity: usize,
    seed: u64,
}

impl Applied {
    /// Parses text such as `gaussian-noise:3`. The noise is a function of `seed` and the image's index.
    ///
    /// # Errors
    /// Fails if there is no severity, the severity is not from 1 to 5, or the name is unknown.
    pub fn parse(text: &str, seed: u64) -> Result<Applied> {
        let form = "write a name and a severity, such as gaussian-noise:3";
        let (key, severity) = text.split_once(':').with_context(|| format!("corruption `{text}`: {form}"))?;
        let corruption = find(CORRUPTIONS, key).map_err(Error::msg)?;
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
mod tests {
    use super::*;
    use crate::data::{Inputs, Packed};

    const SIDE: usize = 32;

    /// Returns four images with smooth colours.
    fn images() -> Packed {
        let value = |i: usize| (i % SIDE * 9 + i / SIDE % SIDE * 5 + i / (SIDE * SIDE) * 23) % 230 + 10;
        Packed { pixels: (0..4 * 3 * SIDE * SIDE).map(|i| value(i) as u8).collect(), height: SIDE, width: SIDE }
    }

    fn corrupt(corruption: &'static Corruption, severity: usize, seed: u64) -> Packed {
        let applied = Applied { corruption, severity, seed };
        let Inputs::Packed(packed) = Inputs::Packed(images()).corrupted(applied).unwrap() else {
            panic!("images in memory stay there")
        };
        packed
    }

    fn squared_difference(a: &Packed, b: &Packed) -> f64 {
        let pairs = a.pixels.iter().zip(&b.pixels);
        pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>() / a.pixels.len() as f64
    }

    #[test]
    fn all_change_the_image_and_the_last_severity_more_than_the_first() {
        for corruption in CORRUPTIONS {
            let damage = [1, 5].map(|severity| squared_difference(&images(), &corrupt(corruption, severity, 1)));
            assert!(damage[0] > 0.0 && damage[0] < damage[1], "{}: {damage:?}", corruption.key);
        }
    }

    #[test]
    fn noise_depends_on_seed_and_index_alone() {
        for corruption in CORRUPTIONS {
            let whole = corrupt(corruption, 3, 7);
            let mut alone = images().image(2).to_vec();
            Applied { corruption, severity: 3, seed: 7 }.apply(&mut alone, SIDE, SIDE, 2).unwrap();
            assert_eq!(whole.image(2), alone, "{}", corruption.key);
        }
        assert_ne!(corrupt(&kinds::GAUSSIAN_NOISE, 3, 7), corrupt(&kinds::GAUSSIAN_NOISE, 3, 8));
    }

    #[test]
    fn noise_has_its_stated_size() {
        let gray = Packed { pixels: vec![128; 3 * 64 * 64], height: 64, width: 64 };
        let deviation = |corruption: &'static Corruption| {
            let mut pixels = gray.pixels.clone();
            Applied { corruption, severity: 3, seed: 1 }.apply(&mut pixels, 64, 64, 0).unwrap();
            (squared_difference(&Packed { pixels, ..gray }, &gray)).sqrt() / 255.0
        };
        // With x = 128 / 255, the expected deviations are 0.08; sqrt(x / 100); 0.12 x; sqrt(0.03 / 2 (x^2 + (1 - x)^2)).
        for (corruption, expected) in [
            (&kinds::GAUSSIAN_NOISE, 0.08),
            (&kinds::SHOT, 0.07085),
            (&kinds::SPECKLE, 0.06024),
            (&kinds::IMPULSE, 0.08660),
        ] {
            let found = deviation(corruption);
            assert!((found / expected - 1.0).abs() < 0.08, "{}: {found} {expected}", corruption.key);
        }
    }

    #[test]
    fn names_are_parsed_or_explained() {
        for corruption in CORRUPTIONS {
            assert_eq!(
                Applied::parse(&format!("{}:5", corruption.key), 1).unwrap().to_string(),
                format!("{}:5", corruption.key)
            );
        }
        let error = |text| Applied::parse(text, 1).unwrap_err().to_string();
        assert!(error("fog:3").starts_with("unknown corruption `fog`; known: gaussian-noise, shot-noise,"));
        assert_eq!(error("jpeg:6"), "corruption `jpeg:6`: the severity must be from 1 to 5");
        assert_eq!(error("jpeg"), "corruption `jpeg`: write a name and a severity, such as gaussian-noise:3");
    }
}
