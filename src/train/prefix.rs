//! The output of the blocks below the first trained one, computed once an image: it is the same for all particles and
//! epochs, as long as images are not augmented.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use tch::{Device, Kind, Tensor, no_grad};

use crate::base::tensor::{first_line, guarded};
use crate::data::batches::{ImageSet, in_order};
use crate::experiment::PrefixCache;
use crate::machine::memory::{self, free_bytes};
use crate::model::Model;
use crate::model::vit::footprint::Graph;
use crate::model::vit::weights::Weights;

/// What enters block `block`, for some images.
pub struct Prefix {
    pub block: usize,
    /// `[N, T, d]` in the compute type, in memory or mapped from a file.
    tokens: Tensor,
    /// Row of `tokens` of each image of the set; `u32::MAX` for one that is not there.
    rows: Vec<u32>,
    /// Removed with the cache.
    file: Option<PathBuf>,
    device: Device,
}

/// What a cache is made of.
pub struct Plan<'a> {
    pub model: &'a Model,
    /// Bytes on the CPU that training takes besides, as soon as the cache is there.
    pub coming: u64,
    pub block: usize,
    pub images: &'a ImageSet,
    /// Images that training will ask for.
    pub indices: &'a [u32],
    pub batch_size: usize,
    /// Where it is kept on request; of this process alone.
    pub file: PathBuf,
}

impl Prefix {
    /// Computes the cache, where it is asked for and of use.
    ///
    /// # Errors
    /// Images that cannot be read, no room for a file.
    pub fn build(plan: &Plan, place: PrefixCache) -> Result<Option<Prefix>> {
        if plan.block == 0 || place == PrefixCache::Off {
            return Ok(None);
        }
        let Plan { model, coming, block, indices, .. } = *plan;
        let geometry = &model.vit.geometry;
        let shape = [indices.len() as i64, 1 + geometry.grid * geometry.grid, geometry.width];
        let bytes = shape.iter().product::<i64>() as u64 * model.kind.elt_size_in_bytes() as u64;
        let gib = memory::gib(bytes);
        if place == PrefixCache::Auto
            && free_bytes(Device::Cpu).is_none_or(|free| bytes > free.saturating_sub(coming) / 2)
        {
            tracing::info!(
                "blocks 0 to {} are not cached: {gib:.1} GiB; train.prefix_cache = \"disk\" keeps them in a file",
                block - 1
            );
            return Ok(None);
        }
        let file = (place == PrefixCache::Disk).then(|| plan.file.clone());
        let tokens = match &file {
            Some(path) => mapped(path, &shape, bytes, model.kind)?,
            None => Tensor::f_zeros(shape, (model.kind, Device::Cpu)).map_err(|e| anyhow!("{}", first_line(&e)))?,
        };
        let mut rows = vec![u32::MAX; plan.images.samples()];
        indices.iter().enumerate().for_each(|(row, index)| rows[*index as usize] = row as u32);
        let prefix = Prefix { block, tokens, rows, file, device: model.device };
        prefix.fill(plan)?;
        tracing::info!("blocks 0 to {} run once an image: {gib:.2} GiB kept", block - 1);
        Ok(Some(prefix))
    }

    fn fill(&self, plan: &Plan) -> Result<()> {
        let bar = crate::base::logging::bar(plan.indices.len() as u64, "first blocks");
        let weights = Weights::frozen(&plan.model.base);
        let mut row = 0;
        let sizes = (plan.batch_size, 0);
        let cutter = plan.model.plan("prefix cache", Graph::None, sizes, "set train.prefix_cache = \"off\"")?;
        for batch in plan.images.batches(in_order(plan.indices, cutter.cut().images)) {
            let batch = batch?;
            let count = batch.labels.size()[0];
            guarded("prefix cache", "lower train.eval_batch_size", || {
                let images = plan.model.preprocess.images(&batch.bytes, 1);
                let tokens = no_grad(|| plan.model.vit.tokens(&weights, plan.block, &images)).squeeze_dim(0);
                self.tokens.narrow(0, row, count).copy_(&tokens);
                Ok(())
            })?;
            row += count;
            bar.inc(count as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// `[K, T, d]` on the device.
    ///
    /// # Errors
    /// An image that is not in the cache.
    pub fn tokens(&self, indices: &[u32]) -> Result<Tensor> {
        let rows: Vec<i64> = indices.iter().map(|index| i64::from(self.rows[*index as usize])).collect();
        ensure!(rows.iter().all(|row| *row < self.tokens.size()[0]), "an image is not in the prefix cache");
        Ok(self.tokens.index_select(0, &Tensor::from_slice(&rows)).to_device(self.device))
    }
}

/// A file of `bytes` bytes as a tensor.
fn mapped(path: &Path, shape: &[i64], bytes: u64, kind: Kind) -> Result<Tensor> {
    let file = std::fs::File::create(path).with_context(|| format!("{}: cannot create", path.display()))?;
    // Allocated, not only announced: a full disk is an error here, not a signal in the middle of training.
    fs4::FileExt::allocate(&file, bytes).with_context(|| {
        format!(
            "{}: no room for {:.1} GiB: make room, or set train.prefix_cache = \"memory\" or \"off\"",
            path.display(),
            memory::gib(bytes)
        )
    })?;
    let name = path.to_str().with_context(|| format!("{}: the path is not UTF-8", path.display()))?;
    let flat = Tensor::f_from_file(name, true, shape.iter().product::<i64>(), (kind, Device::Cpu));
    Ok(flat.map_err(|e| anyhow!("{}: {}", path.display(), first_line(&e)))?.view(shape))
}

impl Drop for Prefix {
    fn drop(&mut self) {
        // Best effort: a file that stays is overwritten by the next run of the same settings.
        if let Some(path) = &self.file {
            let _ = std::fs::remove_file(path);
        }
    }
}
