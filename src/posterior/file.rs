//! A posterior as tensors in a file, and `posterior.safetensors`: a posterior, with its class names and the hashes of the
//! files it was trained from.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use super::{Description, Fitted, Masks, Posterior, Rows};
use crate::base::tensor::host_f64;
use crate::base::tensor_file::{RUN, State};
use crate::data::labels::Labels;
use crate::data::numbers::Scale;
use crate::subspace::LAYOUT;

impl Posterior {
    /// Adds the tensors to those of a file, under names that start with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        let mut put = |name: &str, tensor: &Tensor| state.put(&format!("{prefix}{name}"), tensor);
        match self {
            Posterior::Points { theta } => put("theta", theta),
            Posterior::Gaussians { mean, std } => {
                put("theta", mean);
                put("std", std);
            }
            Posterior::LowRankGaussians { mean, std, deviations } => {
                put("theta", mean);
                put("std", std);
                put("deviations", deviations);
            }
            Posterior::BlockGaussians { mean, std, factors, start } => {
                put("theta", mean);
                put("std", std);
                put("factors", factors);
                put("factors.start", &Tensor::from_slice(&[*start]));
            }
            Posterior::TiedGaussians { mean, std, rows } => {
                put("theta", mean);
                put("std", std);
                let numbers: Vec<i64> = rows.iter().flat_map(|own| [own.start, own.count, own.width]).collect();
                put("tied", &Tensor::from_slice(&numbers).view([-1, 3]));
            }
            Posterior::Bank { draws, weights } => {
                put("draws", draws);
                weights.iter().for_each(|weights| put("weights", &Tensor::from_slice(weights)));
            }
            Posterior::Dropout { theta, masks } => {
                put("theta", theta);
                masks.save(prefix, state);
            }
            Posterior::Laplace { mode, fitted } => {
                put("theta", mode);
                fitted.save(prefix, state);
            }
        }
    }

    /// Reads the posterior that [`save`](Self::save) added. The tensors in the file determine the variant.
    ///
    /// # Errors
    /// Fails if tensors are missing, damaged, or of shapes that do not fit each other.
    pub fn load(prefix: &str, state: &State, device: Device) -> Result<Posterior> {
        let has = |name: &str| state.has(&format!("{prefix}{name}"));
        let matrix = |name: &str| {
            let tensor = state.get(&format!("{prefix}{name}"))?.to_device(device);
            ensure!(tensor.dim() == 2, "{name} is not a matrix");
            Ok(tensor)
        };
        if has("draws") {
            let draws = matrix("draws")?;
            let weights = match has("weights") {
                true => Some(weights(&state.get(&format!("{prefix}weights"))?, draws.size()[0])?),
                false => None,
            };
            return Ok(Posterior::Bank { draws, weights });
        }
        let theta = matrix("theta")?;
        if has("std") {
            return gaussians(theta, matrix("std")?, prefix, state);
        }
        if let Some(masks) = Masks::load(prefix, state, theta.size()[1])? {
            return Ok(Posterior::Dropout { theta, masks });
        }
        Ok(match Fitted::load(prefix, state, &theta, device)? {
            Some(fitted) => Posterior::Laplace { mode: theta, fitted },
            None => Posterior::Points { theta },
        })
    }
}

/// Reads Gaussians of these means and deviations, both `[n, P]`.
fn gaussians(mean: Tensor, std: Tensor, prefix: &str, state: &State) -> Result<Posterior> {
    let has = |name: &str| state.has(&format!("{prefix}{name}"));
    let tensor = |name: &str| state.get(&format!("{prefix}{name}"));
    ensure!(std.size() == mean.size(), "std has another shape than theta");
    let (particles, parameters) = mean.size2()?;
    if has("factors") {
        let factors = tensor("factors")?.to_device(mean.device());
        let start = state.count(&format!("{prefix}factors.start"))?;
        check_blocks(&factors.size(), start, particles, parameters)?;
        return Ok(Posterior::BlockGaussians { mean, std, factors, start });
    }
    if has("tied") {
        let rows = tied(&tensor("tied")?, parameters)?;
        return Ok(Posterior::TiedGaussians { mean, std, rows });
    }
    if !has("deviations") {
        return Ok(Posterior::Gaussians { mean, std });
    }
    let deviations = tensor("deviations")?.to_device(mean.device());
    let found = deviations.size();
    let fits = found.len() == 3 && (found[0], found[2]) == (particles, parameters);
    ensure!(fits, "deviations have shape {found:?} around theta [{particles}, {parameters}]");
    Ok(Posterior::LowRankGaussians { mean, std, deviations })
}

/// Returns the matrices whose rows share a random number, `[L, 3]`, and fails if they are not within rows of so many columns.
fn tied(stored: &Tensor, parameters: i64) -> Result<Vec<Rows>> {
    let shape = stored.size();
    ensure!(shape.len() == 2 && shape[1] == 3 && stored.kind() == Kind::Int64, "`tied` is damaged");
    let rows = |index: i64| {
        let [start, count, width] = [0, 1, 2].map(|column| stored.int64_value(&[index, column]));
        let end = count.checked_mul(width).and_then(|length| length.checked_add(start));
        let fits = start >= 0 && count > 0 && width > 0 && end.is_some_and(|end| end <= parameters);
        ensure!(fits, "`tied` has {count} rows of {width} columns from column {start} on, and there are {parameters}");
        Ok(Rows { start, count, width })
    };
    (0..shape[0]).map(rows).collect()
}

/// Fails unless blocks with factors of this shape, from column `start` on, lie within the rows of theta.
fn check_blocks(factors: &[i64], start: i64, particles: i64, parameters: i64) -> Result<()> {
    let end = match *factors {
        [n, blocks, rows, columns] if n == particles && rows == columns => {
            blocks.checked_mul(rows).and_then(|width| width.checked_add(start))
        }
        _ => None,
    };
    ensure!(
        start >= 0 && end.is_some_and(|end| end <= parameters),
        "factors have shape {factors:?} from column {start} on, around theta [{particles}, {parameters}]"
    );
    Ok(())
}

/// Returns the weights of `draws` draws, and fails if they are no distribution over these.
fn weights(stored: &Tensor, draws: i64) -> Result<Vec<f64>> {
    ensure!(stored.size() == [draws], "weights have shape {:?} for {draws} draws", stored.size());
    let weights = host_f64(stored)?;
    let sum: f64 = weights.iter().sum();
    let is_distribution = weights.iter().all(|weight| *weight >= 0.0) && (sum - 1.0).abs() < 1e-6;
    ensure!(is_distribution, "the weights of the draws are not at least 0 with the sum 1 (it is {sum})");
    Ok(weights)
}

/// Returns the scale of stored numbers, and fails if none has it.
fn scale(stored: &Tensor) -> Result<Scale> {
    match host_f64(stored)?[..] {
        [mean, std] if mean.is_finite() && std.is_finite() && std > 0.0 => Ok(Scale { mean, std }),
        ref other => anyhow::bail!("the scale of the numbers is {other:?}: must be a mean and a deviation above 0"),
    }
}

/// A posterior as a run stores it.
pub struct Stored {
    pub posterior: Posterior,
    pub classes: Vec<String>,
    /// The scale of the numbers that were learnt; `None` for classes.
    pub scale: Option<Scale>,
    /// The hashes of the files that it was trained from, concatenated.
    pub file_hashes: String,
    /// The description for other programs.
    pub about: Description,
    /// The weight `[C, d]` and bias `[C]` of a head that the particles do not train, for other programs.
    pub frozen_head: Option<[Tensor; 2]>,
    /// The id of the run whose posterior it is, once it has been written; `None` before.
    pub run: Option<String>,
    /// The digest of the layout of theta; `None` if the file does not say it.
    pub layout: Option<String>,
}

impl Stored {
    /// Writes the posterior of the run with the id `run` to a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path, run: &str) -> Result<()> {
        let mut state = State::default();
        state.describe(RUN, run.to_string());
        self.layout.iter().for_each(|layout| state.describe(LAYOUT, layout.clone()));
        self.posterior.save("", &mut state);
        state.put_text("classes", &serde_json::to_string(&self.classes).context("cannot write the class names")?);
        if let Some(Scale { mean, std }) = self.scale {
            state.put("scale", &Tensor::from_slice(&[mean, std]));
        }
        state.put_text("file_hashes", &self.file_hashes);
        for (name, tensor) in ["head.weight", "head.bias"].into_iter().zip(self.frozen_head.iter().flatten()) {
            state.put(name, tensor);
        }
        self.about.save(&mut state)?;
        state.describe("classes", serde_json::to_string(&self.classes)?);
        state.write(path)
    }

    /// Reads a posterior and moves it to a device.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is damaged.
    pub fn read(path: &Path, device: Device) -> Result<Stored> {
        let state =
            State::read(path).context("the posterior cannot be used (`bella train --force` trains it again)")?;
        let posterior = Posterior::load("", &state, device).with_context(|| path.display().to_string())?;
        let classes = serde_json::from_str(&state.text("classes")?);
        let classes = classes.with_context(|| format!("{}: the class names are damaged", path.display()))?;
        let scale = match state.has("scale") {
            true => Some(scale(&state.get("scale")?).with_context(|| path.display().to_string())?),
            false => None,
        };
        let about = Description::load(&state).with_context(|| path.display().to_string())?;
        let frozen_head = match state.has("head.weight") {
            true => Some([state.get("head.weight")?, state.get("head.bias")?]),
            false => None,
        };
        let [run, layout] = [RUN, LAYOUT].map(|key| state.described(key).map(str::to_string));
        let file_hashes = state.text("file_hashes")?;
        Ok(Stored { posterior, classes, scale, file_hashes, about, frozen_head, run, layout })
    }

    /// Returns the meaning of the labels that were learnt.
    pub fn labels(&self) -> Labels {
        Labels { classes: self.classes.clone(), scale: self.scale }
    }

    /// Checks that the posterior was trained from files with these hashes, the first of which is that of `checkpoint`.
    /// A posterior is an update of one checkpoint and is meaningless with another.
    ///
    /// # Errors
    /// Fails if the hashes differ.
    pub fn check_files(&self, file_hashes: &str, checkpoint: &Path) -> Result<()> {
        ensure!(
            file_hashes == self.file_hashes,
            "{}: the checkpoint or the head's file has changed since the run was trained: put the old one back",
            checkpoint.display()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posterior::Draws;
    use crate::subspace::geometry::Inputs;

    #[test]
    fn every_variant_survives_its_file() {
        tch::manual_seed(3);
        let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu));
        let (mean, std) = (random(&[2, 5]), random(&[2, 5]).square());
        let clone = Tensor::shallow_clone;
        let masks = Masks { layers: vec![Inputs { start: 1, outputs: 2, inputs: 2, plus: 0 }], rate: 0.5 };
        let variants = [
            Posterior::Points { theta: clone(&mean) },
            Posterior::Dropout { theta: clone(&mean), masks },
            Posterior::Gaussians { mean: clone(&mean), std: clone(&std) },
            Posterior::BlockGaussians {
                mean: clone(&mean),
                std: clone(&std),
                factors: random(&[2, 2, 2, 2]).tril(0),
                start: 1,
            },
            Posterior::TiedGaussians {
                mean: clone(&mean),
                std: clone(&std),
                rows: vec![Rows { start: 1, count: 2, width: 2 }],
            },
            Posterior::LowRankGaussians { mean, std, deviations: random(&[2, 3, 5]) },
            Posterior::Bank { draws: random(&[7, 5]), weights: None },
            Posterior::Bank { draws: random(&[3, 5]), weights: Some(vec![0.5, 0.125, 0.375]) },
        ];
        for posterior in variants {
            let mut state = State::default();
            posterior.save("best_", &mut state);
            let read = Posterior::load("best_", &state, Device::Cpu).unwrap();
            assert_eq!(std::mem::discriminant(&posterior), std::mem::discriminant(&read));
            assert!(posterior.theta().equal(read.theta()));
            assert_eq!(posterior.weights(), read.weights());
            assert_eq!(read.is_random(), posterior.is_random());
            if read.is_random() {
                let draw = |from: &Posterior| Draws::new(from, 2, 1).unwrap().rows(0..4).unwrap();
                assert!(draw(&posterior).equal(&draw(&read)));
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let zeros = |size: &[i64]| Tensor::zeros(size, (Kind::Float, Device::Cpu));
        let refused = |tensors: &[(&str, &[i64])]| {
            let mut state = State::default();
            tensors.iter().for_each(|(name, size)| state.put(name, &zeros(size)));
            Posterior::load("", &state, Device::Cpu).err().unwrap().to_string()
        };
        assert_eq!(refused(&[("theta", &[3])]), "theta is not a matrix");
        assert_eq!(refused(&[("theta", &[2, 3]), ("std", &[2, 4])]), "std has another shape than theta");
        let low_rank = refused(&[("theta", &[2, 3]), ("std", &[2, 3]), ("deviations", &[2, 5, 4])]);
        assert_eq!(low_rank, "deviations have shape [2, 5, 4] around theta [2, 3]");
        for (factors, of) in [([2, 2, 2, 2], 4), ([3, 1, 2, 2], 4), ([2, 1, 2, 1], 4), ([2, 1, 2, 2], 1)] {
            let mut state = State::default();
            ["theta", "std"].iter().for_each(|name| state.put(name, &zeros(&[2, of])));
            state.put("factors", &zeros(&factors));
            state.put_count("factors.start", 1);
            let error = Posterior::load("", &state, Device::Cpu).err().unwrap().to_string();
            assert_eq!(error, format!("factors have shape {factors:?} from column 1 on, around theta [2, {of}]"));
        }
        for (numbers, said) in [
            ([0i64, 2, 2], "`tied` has 2 rows of 2 columns from column 0 on, and there are 3"),
            ([-1, 1, 2], "`tied` has 1 rows of 2 columns from column -1 on, and there are 3"),
            ([0, i64::MAX, 2], "`tied` has 9223372036854775807 rows of 2 columns from column 0 on, and there are 3"),
        ] {
            let mut state = State::default();
            ["theta", "std"]
                .iter()
                .for_each(|name| state.put(name, &Tensor::zeros([2, 3], (Kind::Float, Device::Cpu))));
            state.put("tied", &Tensor::from_slice(&numbers).view([1, 3]));
            assert_eq!(Posterior::load("", &state, Device::Cpu).err().unwrap().to_string(), said);
        }
        assert_eq!(refused(&[("draws", &[2, 3]), ("weights", &[3])]), "weights have shape [3] for 2 draws");
        let zeros = refused(&[("draws", &[2, 3]), ("weights", &[2])]);
        assert_eq!(zeros, "the weights of the draws are not at least 0 with the sum 1 (it is 0)");
    }
}
