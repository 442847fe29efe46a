//! Parameters that PEFT stores whole beside the factors of an adapter: the checkpoint's own where the layer of the tokens is adapted, and
//! those of layers that it has trained whole (`modules_to_save`).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::lora::Lora;
use super::settings::MERGE;
use crate::model::Backbone;
use crate::model::network::is_outside;

/// A parameter that lies whole in an adapter.
pub struct Beside {
    /// Its name in the adapter.
    stored: String,
    /// f32.
    value: Tensor,
    /// Whether it is the checkpoint's own.
    is_frozen: bool,
}

impl Beside {
    /// Takes the tensor that an adapter calls `stored`, in the place of the checkpoint's parameter `own`.
    ///
    /// # Errors
    /// Fails if the checkpoint at `path` has no such parameter of this shape.
    pub fn of(stored: String, value: &Tensor, own: Option<&Tensor>, path: &Path) -> Result<Beside> {
        let alike = own.filter(|own| own.size() == value.size());
        ensure!(alike.is_some(), "{}", untaken(&stored, path));
        let is_frozen = alike.is_some_and(|own| own.equal(&value.to_kind(own.kind())));
        Ok(Beside { stored, value: value.to_kind(Kind::Float).contiguous(), is_frozen })
    }
}

/// Returns why a tensor that lies whole in an adapter is not taken over.
fn untaken(stored: &str, path: &Path) -> String {
    format!(
        "holds another {stored} than {}: the adapter has also trained that, which is neither a low-rank update nor a whole layer outside of \
         the blocks: {MERGE}",
        path.display()
    )
}

/// Returns the parameters of the layers that an adapter of the checkpoint at a path has trained whole, by their canonical names.
///
/// # Errors
/// Fails if it has trained others, such as those of a block, a bias alone, or those of a layer that it also updates.
pub fn trained(
    beside: &BTreeMap<String, Beside>,
    updates: &BTreeMap<String, Lora>,
    tower: &dyn Backbone,
    path: &Path,
) -> Result<BTreeMap<String, Tensor>> {
    let network = tower.network();
    let slots = network.slots();
    let outside = slots.iter().filter(|slot| is_outside(network, slot) && !updates.contains_key(&slot.name));
    let mut whole = BTreeMap::new();
    for slot in outside {
        let own = ["weight", "bias"].map(|part| format!("{}.{part}", slot.name));
        let own = own.into_iter().filter(|name| tower.base().get(name).is_some());
        let found: Option<Vec<(String, &Beside)>> = own.map(|name| Some((name.clone(), beside.get(&name)?))).collect();
        let found = found.filter(|all| all.iter().any(|(_, one)| !one.is_frozen));
        whole.extend(found.into_iter().flatten().map(|(name, one)| (name, one.value.shallow_clone())));
    }
    let stranger = beside.iter().find(|(name, one)| !one.is_frozen && !whole.contains_key(*name));
    ensure!(stranger.is_none(), "{}", untaken(stranger.map_or("", |(_, one)| one.stored.as_str()), path));
    Ok(whole)
}
