//! The cache of the input of the first trained stage. It is computed once per image, because it is the same for all
//! particles and epochs as long as images are not augmented.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use tch::{Device, Kind, Tensor, no_grad};

use crate::base::hash::of_rows;
use crate::base::mapped::Watched;
use crate::base::tensor::{first_line, guarded};
use crate::data::Fields;
use crate::data::batches::{SampleSet, in_order};
use crate::experiment::PrefixCache;
use crate::machine::memory::{self, free_bytes};
use crate::model::Model;
use crate::model::network::Graph;
use crate::model::network::Weights;
use crate::run::RunFolder;

/// The input of stage `stage` for some images.
pub struct Prefix {
    pub stage: usize,
    /// The values, `[N, …]` in the compute type, in memory or mapped from a file, one after the other.
    values: Fields,
    /// The row in `values` of each image of the set; `u32::MAX` for an image that is not cached.
    rows: Vec<u32>,
    /// Names the file in the error if it is made shorter while the values are mapped from it.
    _watched: Option<Watched>,
    /// The file of the values, which is removed with the cache.
    file: Option<PathBuf>,
    /// The hashes of each row of `values`, where they lie in a file.
    hashes: Vec<Vec<u64>>,
    device: Device,
}

/// The data and settings from which a cache is computed.
struct Plan<'a> {
    model: &'a Model,
    /// The bytes on the CPU that training takes as soon as the cache is there.
    coming: u64,
    stage: usize,
    images: &'a SampleSet,
    /// The images that training will use.
    indices: &'a [u32],
    batch_size: usize,
    /// The path of the file, if one is asked for. Each process has its own.
    file: PathBuf,
}

/// Computes the cache of the images `indices` for a training, if it is asked for and of use. Theta and what steps keep take `coming` bytes
/// as soon as it is there.
///
/// # Errors
/// Fails if it is asked for and of no use, if images cannot be read, or if there is no room for it.
pub(super) fn of(
    context: &super::context::Context,
    folder: &RunFolder,
    indices: &[u32],
    coming: u64,
) -> Result<Option<Prefix>> {
    let (model, spec, images) = (context.model(), context.spec(), &context.material.train);
    let stage = context.first_computed()?;
    let plan = Plan {
        model,
        coming: if model.device == Device::Cpu { coming } else { 0 },
        stage,
        images,
        indices,
        batch_size: spec.eval_batch_size,
        file: folder.prefix_cache(context.group().rank()),
    };
    Prefix::build(&plan, spec.prefix_cache)
}

/// Returns whether half of the memory that is free beside `coming` bytes has room for a cache of `bytes` bytes.
pub fn has_room(bytes: u64, coming: u64) -> bool {
    free_bytes(Device::Cpu).is_some_and(|free| bytes <= free.saturating_sub(coming) / 2)
}

impl Prefix {
    /// Computes the cache, if it is asked for and of use.
    ///
    /// # Errors
    /// Fails if images cannot be read, or if there is no room for the file.
    fn build(plan: &Plan, place: PrefixCache) -> Result<Option<Prefix>> {
        if plan.stage == 0 || place == PrefixCache::Off {
            return Ok(None);
        }
        let Plan { model, coming, stage, indices, .. } = *plan;
        let shapes = model.network.entering(stage);
        let row: i64 = shapes.values().map(|shape| shape.iter().product::<i64>()).sum();
        let count = indices.len() as i64;
        let bytes = (count * row) as u64 * model.kind.elt_size_in_bytes() as u64;
        let gib = memory::gib(bytes);
        if place == PrefixCache::Auto && !has_room(bytes, coming) {
            tracing::info!(
                "{} are not cached: {gib:.1} GiB; train.prefix_cache = \"disk\" keeps them in a file",
                before(model, stage)
            );
            return Ok(None);
        }
        let file = (place == PrefixCache::Disk).then(|| plan.file.clone());
        let all = match &file {
            Some(path) => mapped(path, count * row, bytes, model.kind)?,
            None => {
                Tensor::f_zeros([count * row], (model.kind, Device::Cpu)).map_err(|e| anyhow!("{}", first_line(&e)))?
            }
        };
        let mut start = 0;
        let values = shapes.map(|shape| {
            let length = count * shape.iter().product::<i64>();
            start += length;
            all.narrow(0, start - length, length).view([&[count], &shape[..]].concat().as_slice())
        });
        let mut rows = vec![u32::MAX; plan.images.samples()];
        indices.iter().enumerate().for_each(|(row, index)| rows[*index as usize] = row as u32);
        let watched = file.as_ref().map(|path| Watched::new(all.data_ptr() as usize, bytes as usize, path));
        let mut prefix =
            Prefix { stage, values, rows, _watched: watched, file, hashes: Vec::new(), device: model.device };
        prefix.fill(plan)?;
        tracing::info!("{} run once per image: {gib:.2} GiB kept", before(model, stage));
        Ok(Some(prefix))
    }

    fn fill(&mut self, plan: &Plan) -> Result<()> {
        let bar = crate::base::logging::bar(plan.indices.len() as u64, "first blocks");
        let weights = Weights::frozen(&plan.model.base);
        let mut row = 0;
        let sizes = (plan.batch_size, 0);
        let chunker = plan.model.plan("prefix cache", Graph::None, sizes, "set train.prefix_cache = \"off\"")?;
        for batch in plan.images.batches(in_order(plan.indices, chunker.cut().images)) {
            let batch = batch?;
            let count = batch.labels.size()[0];
            guarded("prefix cache", "lower train.eval_batch_size", || {
                let samples = plan.model.preparation.prepare(&batch.samples.for_all());
                let entering = no_grad(|| plan.model.network.enter_at(&weights, plan.stage, &samples));
                let rows = self.values.narrow(0, row, count);
                for (kept, entering) in rows.zip(&entering) {
                    let entering = entering.squeeze_dim(0);
                    // A batch of short texts leaves the rest of its rows zero, where the mask is.
                    kept.narrow(1, 0, entering.size()[1]).copy_(&entering);
                }
                if self.file.is_some() {
                    self.hashes.extend(hashes(&rows));
                }
                Ok(())
            })?;
            row += count;
            bar.inc(count as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Returns the input of the stage for the images `indices`, `[K, …]`, on the device.
    ///
    /// # Errors
    /// Fails if an image is not in the cache, or if its values in the file are not those that were written.
    pub fn values(&self, indices: &[u32]) -> Result<Fields> {
        let rows: Vec<i64> = indices.iter().map(|index| i64::from(self.rows[*index as usize])).collect();
        ensure!(rows.iter().all(|row| *row < self.values.length(0)), "an image is not in the prefix cache");
        let index = Tensor::from_slice(&rows);
        let values = self.values.map(|values| values.index_select(0, &index));
        if let Some(file) = &self.file {
            let same = hashes(&values).iter().zip(&rows).all(|(hash, row)| *hash == self.hashes[*row as usize]);
            ensure!(
                same,
                "{}: damaged while it was in use: the same command makes it anew and goes on",
                file.display()
            );
        }
        Ok(values.on(self.device))
    }
}

/// Returns the hashes of each row of all values.
fn hashes(values: &Fields) -> Vec<Vec<u64>> {
    let each: Vec<Vec<u64>> = values.values().map(of_rows).collect();
    (0..values.length(0) as usize).map(|row| each.iter().map(|of| of[row]).collect()).collect()
}

/// Returns the words for the stages before one.
fn before(model: &Model, stage: usize) -> String {
    match stage.checked_sub(model.network.stages() - model.network.blocks()) {
        Some(0) => "the image tower and the projector".to_string(),
        Some(blocks) => format!("blocks 0 to {}", blocks - 1),
        None => "the first stages".to_string(),
    }
}

/// Creates a file of `bytes` bytes and maps it as a tensor of `count` numbers.
fn mapped(path: &Path, count: i64, bytes: u64, kind: Kind) -> Result<Tensor> {
    let file = std::fs::File::create(path).with_context(|| format!("{}: cannot create", path.display()))?;
    // The space is allocated now, so that a full disk is an error here and not a signal in the middle of training.
    fs4::FileExt::allocate(&file, bytes).with_context(|| {
        format!(
            "{}: no room for {:.1} GiB: make room, or set train.prefix_cache = \"memory\" or \"off\"",
            path.display(),
            memory::gib(bytes)
        )
    })?;
    let name = path.to_str().with_context(|| format!("{}: the path is not UTF-8", path.display()))?;
    let flat = Tensor::f_from_file(name, true, count, (kind, Device::Cpu));
    flat.map_err(|e| anyhow!("{}: {}", path.display(), first_line(&e)))
}

impl Drop for Prefix {
    fn drop(&mut self) {
        // Best effort: a file that stays is overwritten by the next run with the same settings.
        if let Some(path) = &self.file {
            let _ = std::fs::remove_file(path);
        }
    }
}
