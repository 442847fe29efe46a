//! Rows of theta from what came in: from adapters, and from fine-tuned copies of a checkpoint, which are read as full particles.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tch::{Device, Kind, Tensor};

use super::expected::{self, HEAD_FILE};
use super::incoming::{Adapter, Base};
use super::lora::Lora;
use super::settings::MERGE;
use crate::base::hash::{file_sha256, text_sha256};
use crate::base::small::push_new;
use crate::base::tensor::is_zero;
use crate::model::folder::texts::expect_order;
use crate::model::head::Training;
use crate::model::network::{Network, Parameters, Slot};
use crate::model::vit::OwnHead;
use crate::model::{Alike, Setting, folder};
use crate::posterior::description::alpha;
use crate::session::Session;
use crate::subspace::low_rank::MAGNITUDE;
use crate::subspace::{Column, Layout, Shape, Subspace};

/// Returns the table `[subspace.low-rank]` that holds all adapters: the largest rank, and every layer that one of them
/// updates. The common factor alpha / rank is that of the first.
///
/// # Errors
/// Fails if nothing is updated, or if no one table can hold all adapters.
pub fn low_rank_config(adapters: &[Adapter], network: &dyn Network) -> Result<String> {
    let all = || adapters.iter().flat_map(|adapter| adapter.updates.values());
    let rank = largest_rank(adapters)?;
    let scale = all().next().map_or(1.0, |update| update.scale);
    let (mut targets, mut blocks) = (Vec::new(), BTreeSet::new());
    let is_updated = |slot: &&Slot| adapters.iter().any(|one| one.updates.contains_key(&slot.name));
    for slot in network.slots().iter().filter(is_updated) {
        push_new(&mut targets, slot.target.clone());
        blocks.extend(network.block_of(slot));
    }
    let mut table =
        format!("[subspace.low-rank]\nrank = {rank}\nalpha = {:?}\ntargets = {targets:?}\n", alpha(rank, scale));
    let is_chosen = |slot: &Slot| {
        targets.contains(&slot.target) && network.block_of(slot).is_none_or(|block| blocks.contains(&block))
    };
    let chosen = network.slots().into_iter().filter(is_chosen);
    table += &list("rank_pattern", chosen.filter_map(|slot| narrow(&slot, rank)).collect());
    let with_lengths = all().filter(|update| update.magnitude.is_some()).count();
    ensure!(
        with_lengths == 0 || with_lengths == all().count(),
        "some adapters are DoRA and some plain LoRA: import them in separate runs"
    );
    if with_lengths > 0 {
        table += "dora = true\n";
    }
    let is_whole = |slot: &&Slot| adapters.iter().any(|one| one.whole.contains_key(&format!("{}.weight", slot.name)));
    let whole: Vec<String> = network.slots().iter().filter(is_whole).map(|slot| slot.target.clone()).collect();
    if let Some(both) = whole.iter().find(|target| targets.contains(target)) {
        bail!("some adapters update {both}, and others hold it whole: import them in separate runs");
    }
    table += &list("whole", whole);
    if !blocks.is_empty() && blocks.len() < network.blocks() {
        let numbers: Vec<String> = blocks.iter().map(usize::to_string).collect();
        table += &format!("blocks = \"{}\"\n", numbers.join(","));
    }
    Ok(table)
}

/// Returns the largest rank of the updates of all adapters.
fn largest_rank(adapters: &[Adapter]) -> Result<i64> {
    let rank = adapters.iter().flat_map(|adapter| adapter.updates.values()).map(Lora::rank).max();
    rank.with_context(|| {
        let holds_whole = adapters.iter().any(|adapter| !adapter.whole.is_empty());
        let others = format!(", and they have only trained layers that they hold whole: {MERGE}");
        format!("the adapters update nothing: all of their factors are zero{}", if holds_whole { &others } else { "" })
    })
}

/// Returns the rank of a layer that has fewer inputs or outputs than `rank`, as a pattern.
fn narrow(slot: &Slot, rank: i64) -> Option<String> {
    let most = slot.inputs.min(slot.outputs);
    (most < rank).then(|| format!("{}={most}", slot.name))
}

/// Returns a line that sets a list, or nothing for an empty one.
fn list(key: &str, all: Vec<String>) -> String {
    if all.is_empty() { String::new() } else { format!("{key} = {all:?}\n") }
}

/// Returns the particles `[n, P]` of adapters in a low-rank subspace. Smaller ranks are filled up with zeros, another factor
/// than the layout's goes into B, and rows without a trained length keep that of W_0.
///
/// # Errors
/// Fails if an adapter has an update or a head that the layout has no columns for.
pub fn low_rank_rows(adapters: &[Adapter], subspace: &dyn Subspace) -> Result<Tensor> {
    let (layout, origin) = (subspace.layout(), subspace.origin());
    let rows = Tensor::zeros([adapters.len() as i64, layout.parameters()], (Kind::Float, Device::Cpu));
    for (number, adapter) in adapters.iter().enumerate() {
        let row = rows.get(number as i64);
        let put =
            |start: i64, values: &Tensor| row.narrow(0, start, values.numel() as i64).copy_(&values.reshape([-1]));
        for block in &layout.blocks {
            if let (Shape::LowRank { rank, scale, inputs, .. }, Some(update)) =
                (&block.shape, adapter.updates.get(&block.name))
            {
                let update = update.scaled_to(*scale).padded(*rank);
                put(block.columns.start, &update.a);
                put(block.columns.start + rank * inputs, &update.b);
            }
        }
        let lengths = |column: &&Column| column.name.ends_with(MAGNITUDE);
        for Column { name, start, shape, .. } in layout.columns.iter().filter(lengths) {
            let own = origin.narrow(0, *start, shape[0]);
            let trained = adapter.updates.get(name.trim_end_matches(MAGNITUDE)).and_then(|one| one.magnitude.as_ref());
            put(*start, &trained.map_or_else(|| own.shallow_clone(), |m| own.where_self(&m.isnan(), m)));
        }
        let is_whole = |column: &&Column| adapters.iter().any(|one| one.whole.contains_key(&column.name));
        for column in layout.columns.iter().filter(is_whole) {
            let own = origin.narrow(0, column.start, column.count());
            put(column.start, adapter.whole.get(&column.name).unwrap_or(&own));
        }
        let missing = adapter.updates.keys().find(|layer| layout.blocks.iter().all(|block| block.name != **layer));
        ensure!(missing.is_none(), "the layout has no columns for {}", missing.map_or("", |name| name.as_str()));
        if let Some(head) = &adapter.head {
            for (name, values) in ["head.weight", "head.bias"].into_iter().zip(head) {
                let column = layout.columns.iter().find(|column| column.name == name);
                let Some(column) = column else { continue };
                put(column.start, &fitted(values, &column.shape)?);
            }
        }
    }
    Ok(rows)
}

/// Returns a head in the shape of this checkpoint's features. The classifier of DINOv2 also reads the mean of the
/// patches; what is trained for the class token alone has zeros there.
fn fitted(values: &Tensor, shape: &[i64]) -> Result<Tensor> {
    if let ([classes, width], [rows, columns]) = (shape, &values.size()[..])
        && rows == classes
        && *columns == 2 * width
    {
        ensure!(
            is_zero(&values.narrow(1, *width, *width)),
            "its classifier also reads the mean of the patches: give the checkpoint's folder with its classifier, so that bella \
             reads it, too"
        );
        return Ok(values.narrow(1, 0, *width).contiguous());
    }
    ensure!(
        values.size() == shape,
        "its classifier has shape {:?}, this checkpoint and data set need {shape:?}",
        values.size()
    );
    Ok(values.shallow_clone())
}

/// Checks that a head came in exactly where particles train their own.
///
/// # Errors
/// Fails if it did not.
pub fn expect_head(session: &Session, head: Option<[&Tensor; 2]>) -> Result<()> {
    match (session.model.head.training, head) {
        (Training::Always, None) => bail!(
            "head.linear: the adapter has no trained classifier, and no {HEAD_FILE} (weight [C, d], bias [C]) is beside it: put it \
             there, or use the head that it was trained with, [head.checkpoint] or [head.zero-shot]"
        ),
        (Training::Never | Training::WithBackbone | Training::OfNetwork | Training::Tokens, Some([weight, bias])) => {
            let own = &session.model.head;
            let is_same = |own: &Tensor, other: &Tensor| {
                let own = own.to_device(Device::Cpu).to_kind(Kind::Float);
                own.size() == other.size() && own.equal(other)
            };
            let same = is_same(&own.weight, weight) && is_same(&own.bias, bias);
            ensure!(
                same,
                "it has a trained classifier of its own: use [head.linear], or head.zero-shot.weights where features are normalised before it"
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks that an adapter holds the layer that the checkpoint has no weights for, which would be random ones in its particle.
///
/// # Errors
/// Fails if it does not.
pub fn expect_new_layer(session: &Session, adapter: &Adapter) -> Result<()> {
    let Some(layer) = session.new_layer else { return Ok(()) };
    ensure!(
        adapter.whole.contains_key(&format!("{layer}.weight")),
        "holds no weights of `{layer}`, for which the checkpoint has none either, and other adapters do: import them in separate runs"
    );
    Ok(())
}

/// Returns the particle `[P]` of a fine-tuned model in a full layout.
///
/// # Errors
/// Fails if it lacks a parameter.
pub fn full_row(tuned: &Tuned, layout: &Layout) -> Result<Tensor> {
    let part = |column: &crate::subspace::Column| {
        let values = match (column.name.as_str(), &tuned.head) {
            ("head.weight", Some(head)) => fitted(&head.weight, &column.shape)?,
            ("head.bias", Some(head)) => fitted(&head.bias, &column.shape)?,
            (name, _) => tuned.parameters.get(name).map(Tensor::shallow_clone).with_context(|| {
                format!("the fine-tuned model has no {name}: choose the head that it was trained with")
            })?,
        };
        ensure!(
            values.size() == column.shape,
            "its {} has shape {:?}, not {:?}",
            column.name,
            values.size(),
            column.shape
        );
        Ok(values.to_kind(Kind::Float).reshape([-1]))
    };
    let more = tuned.parameters.all().iter().find(|(name, _)| layout.columns.iter().all(|column| column.name != *name));
    if let Some((name, _)) = more {
        bail!(
            "the fine-tuned model has a {name} of its own, which the checkpoint does not have: import it with --rank R"
        );
    }
    let parts = layout.columns.iter().map(part).collect::<Result<Vec<_>>>()?;
    Ok(Tensor::cat(&parts, 0))
}

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
pub fn read_tuned(path: &Path, base: &Base) -> Result<Tuned> {
    let shown = path.display();
    let frozen = base.tower.base();
    ensure!(
        !frozen.has_quantised(),
        "{shown}: is a whole network, and the weights of {} are quantised, so that it has no difference to them: import it on \
         weights that are not",
        base.path.display()
    );
    let Alike { parameters, settings, head } = base.tower.read_like(path)?;
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
    expect_settings(&settings, base).with_context(|| shown.to_string())?;
    let files = folder::content(path)?.into_iter().chain(expected::head_beside(path));
    let hashes = files.map(|file| file_sha256(&file, "import")).collect::<Result<Vec<_>>>()?;
    Ok(Tuned { parameters, head: head_of(path, head, base)?, sha256: text_sha256(&hashes.concat()) })
}

/// Returns the classifier of a copy, which may have one among its weights.
fn head_of(path: &Path, inner: Option<OwnHead>, base: &Base) -> Result<Option<OwnHead>> {
    // The trained classifier lies beside a model whose own one is still the checkpoint's.
    if let Some([weight, bias]) = expected::read_head(path)? {
        return Ok(Some(OwnHead { weight, bias }));
    }
    let Some(head) = inner else { return Ok(None) };
    if base.takes_head {
        expect_order("", path, base.classes)?;
        return Ok(Some(head));
    }
    // The run has another head in place of the checkpoint's classifier, and so of the same one in a copy.
    Ok((!is_own(&head, base)).then_some(head))
}

/// Returns whether a classifier is the checkpoint's.
pub fn is_own(head: &OwnHead, base: &Base) -> bool {
    base.tower.own_head().is_some_and(|own| own.weight == head.weight && own.bias == head.bias)
}

/// The most bytes of two values in a message.
const MOST_SHOWN: usize = 400;

/// Checks that a copy's config asks for the computation of the checkpoint, which the particles run.
fn expect_settings(settings: &[Setting], base: &Base) -> Result<()> {
    let own = base.tower.settings();
    let Some((other, own)) = settings.iter().zip(&own).find(|(other, own)| other != own) else { return Ok(()) };
    // Those of all blocks are too long for a line.
    let values = match own.value.len() + other.value.len() {
        0..=MOST_SHOWN => format!(": {} and not {}", other.value, own.value),
        _ => String::new(),
    };
    bail!(
        "its config says another {} than that of {}, by which its particle would run{values}: give this folder as checkpoint.path to \
         train or evaluate it, or correct the config",
        own.name,
        base.path.display(),
    );
}
