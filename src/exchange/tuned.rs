//! Fine-tuned copies of a checkpoint, read as full particles or compressed to low-rank updates.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use super::head;
use super::incoming::{Adapter, Base};
use super::lora::Lora;
use crate::base::hash::{file_sha256, text_sha256};
use crate::model::network::{Parameters, SlotKind};
use crate::model::vit::OwnHead;
use crate::model::{Alike, folder};

/// A fine-tuned copy of a checkpoint.
pub struct Tuned {
    pub parameters: Parameters,
    pub head: Option<OwnHead>,
    /// The SHA-256 of its files.
    pub sha256: String,
}

/// Reads the folder of a network with the parameters of `base`.
///
/// # Errors
/// Fails if the folder cannot be read, or if its parameters have other names or shapes than those of the checkpoint.
pub fn read(path: &Path, base: &Base) -> Result<Tuned> {
    let shown = path.display();
    let frozen = base.tower.base();
    ensure!(
        !frozen.has_quantised(),
        "{shown}: is a whole network, and the weights of {} are quantised, so that it has no difference to them: import it on \
         weights that are not",
        base.path.display()
    );
    let Alike { parameters, head } = base.tower.read_like(path)?;
    for (name, tensor) in frozen.all() {
        let other = parameters.get(name);
        let other = other.with_context(|| {
            format!("{shown}: is of another network than {}: it has no {name}", base.path.display())
        })?;
        ensure!(
            other.size() == tensor.size(),
            "{shown}: is of another network than {}: its {name} has shape {:?}, the checkpoint's {:?}",
            base.path.display(),
            other.size(),
            tensor.size()
        );
    }
    let more = parameters.all().iter().find(|(name, _)| frozen.get(name).is_none());
    if let Some((name, _)) = more {
        anyhow::bail!(
            "{shown}: is of another network than {}: it also has {name}; give this folder as checkpoint.path to train or evaluate it",
            base.path.display()
        );
    }
    let files = folder::content(path)?.into_iter().chain(head::beside(path));
    let hashes = files.map(|file| file_sha256(&file, "import")).collect::<Result<Vec<_>>>()?;
    let beside = || Ok::<_, anyhow::Error>(head::read(path)?.map(|[weight, bias]| OwnHead { weight, bias }));
    let head = if head.is_some() { head } else { beside()? };
    Ok(Tuned { parameters, head, sha256: text_sha256(&hashes.concat()) })
}

/// A fine-tuned copy as low-rank updates.
pub struct Compressed {
    pub adapter: Adapter,
    /// The share of the squared difference to the checkpoint that the updates leave out.
    pub lost: f64,
    /// The part of that share that lies in parameters that have no low-rank update, such as norms.
    pub elsewhere: f64,
}

/// Returns the best updates of rank `rank` of all linear layers: the truncated singular value decomposition of the
/// difference to the checkpoint (Eckart & Young 1936), in f64.
///
/// # Errors
/// Fails if the copy equals the checkpoint.
pub fn compress(tuned: Tuned, base: &Base, rank: i64) -> Result<Compressed> {
    let frozen = base.tower.base();
    let mut updates = BTreeMap::new();
    let (mut total, mut in_layers, mut kept) = (0.0, 0.0, 0.0);
    let square = |t: &Tensor| t.square().sum(Kind::Double).double_value(&[]);
    let difference = |name: &str| -> Option<Tensor> {
        let double = |t: &Tensor| t.to_kind(Kind::Double);
        Some(double(tuned.parameters.get(name)?) - double(frozen.get(name)?))
    };
    for (name, _) in frozen.all() {
        total += difference(name).map_or(0.0, |delta| square(&delta));
    }
    let slots = || base.tower.network().slots().into_iter().filter(|slot| slot.kind != SlotKind::Other);
    // An output matrix that is tied to the embeddings is a layer of its own here.
    let tied = slots().map(|slot| format!("{}.weight", slot.name)).filter(|name| frozen.first_name(name) != name);
    total += tied.filter_map(|name| difference(&name)).map(|delta| square(&delta)).sum::<f64>();
    ensure!(total > 0.0, "it equals the checkpoint: there is no update to import");
    for slot in slots() {
        let delta = difference(&format!("{}.weight", slot.name));
        let delta = delta.with_context(|| format!("the checkpoint has no {}", slot.name))?;
        let rank = rank.min(slot.inputs).min(slot.outputs);
        let (u, s, v) = delta.svd(true, true);
        let root = s.narrow(0, 0, rank).sqrt();
        in_layers += square(&s);
        kept += square(&s.narrow(0, 0, rank));
        let a = (v.narrow(1, 0, rank) * root.unsqueeze(0)).tr().to_kind(Kind::Float);
        let b = (u.narrow(1, 0, rank) * root.unsqueeze(0)).to_kind(Kind::Float);
        updates.insert(slot.name, Lora { a: a.contiguous(), b: b.contiguous(), scale: 1.0, magnitude: None });
    }
    let head = tuned.head.map(|OwnHead { weight, bias }| [weight, bias]);
    let adapter = Adapter { updates, whole: BTreeMap::new(), head, sha256: tuned.sha256 };
    Ok(Compressed { adapter, lost: 1.0 - kept / total, elsewhere: 1.0 - in_layers / total })
}
