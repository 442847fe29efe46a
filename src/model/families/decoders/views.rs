//! What tokens see in each block: all tokens before them or the latest ones, turned by which angles.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::model::values::Values;

/// What a token sees in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The number of tokens up to its own, if there is a limit.
    pub window: Option<i64>,
    /// The number of the rotary positions among those of the network, if it has some in this block.
    pub rope: Option<usize>,
}

/// The blocks of a network, and whether their positions are rotary.
#[derive(Clone, Copy, Debug)]
pub struct Seeing {
    pub blocks: usize,
    pub turns: bool,
}

/// The types of layers that bella computes.
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

impl Seeing {
    /// Returns views with a window in the blocks that `slides` names.
    pub(super) fn with(self, window: Option<i64>, slides: impl Fn(usize) -> bool) -> Vec<View> {
        let rope = self.turns.then_some(0);
        (0..self.blocks).map(|block| View { window: window.filter(|_| slides(block)), rope }).collect()
    }

    /// Returns views with a window in the blocks that `layer_types` names, or else `slides`.
    ///
    /// # Errors
    /// Fails if the list has another length than there are blocks, or a type that bella does not compute.
    pub(super) fn listed(
        self,
        values: &Values,
        window: Option<i64>,
        slides: impl Fn(usize) -> bool,
    ) -> Result<Vec<View>> {
        let listed = types(values, self.blocks)?;
        Ok(self.with(window, |block| listed.as_ref().map_or_else(|| slides(block), |all| all[block])))
    }
}

/// Returns the views of a network whose tokens see all before them.
pub(super) fn all_tokens(_: &Values, seeing: Seeing) -> Result<Vec<View>> {
    Ok(seeing.with(None, |_| false))
}

/// Returns those of a network with the window in `sliding_window` in every block.
pub(super) fn windows(values: &Values, seeing: Seeing, default: Option<i64>) -> Result<Vec<View>> {
    Ok(seeing.with(window(values, default)?, |_| true))
}

/// Returns the window in `sliding_window`. `null` switches it off; an absent key means the default.
pub(super) fn window(values: &Values, default: Option<i64>) -> Result<Option<i64>> {
    match (values.table().get("sliding_window"), default) {
        (Some(Value::Null), _) | (None, None) => Ok(None),
        (_, default) => values.integer("sliding_window", default.unwrap_or(1)).map(Some),
    }
}

/// Returns the views of Qwen: with the window in the blocks from `max_window_layers` on, if `use_sliding_window` is true.
pub(super) fn late_windows(values: &Values, seeing: Seeing) -> Result<Vec<View>> {
    let window = if values.flag("use_sliding_window", false)? { window(values, Some(4096))? } else { None };
    let first = values.count("max_window_layers", 28)? as usize;
    seeing.listed(values, window, |block| block >= first)
}

/// Returns for each block whether `layer_types` gives it a window; `None` if there is no such list.
fn types(values: &Values, blocks: usize) -> Result<Option<Vec<bool>>> {
    let Some(listed) = values.get("layer_types") else { return Ok(None) };
    let shown = values.path.display();
    let listed: Vec<&Value> = listed.as_array().into_iter().flatten().collect();
    for layer in &listed {
        ensure!(
            [FULL, SLIDING].iter().any(|known| *layer == known),
            "{shown}: layer_types has {layer}, which bella does not compute; known: {FULL}, {SLIDING}"
        );
    }
    ensure!(
        listed.len() == blocks,
        "{shown}: layer_types has {} layers, but the network has {blocks} blocks: they must be as many",
        listed.len()
    );
    Ok(Some(listed.into_iter().map(|layer| layer == SLIDING).collect()))
}

/// Checks that `layer_types`, if there is such a list, names the windows of views.
///
/// # Errors
/// Fails at the first block in which it says something else.
pub fn check_types(values: &Values, views: &[View]) -> Result<()> {
    let Some(listed) = types(values, views.len())? else { return Ok(()) };
    let other = listed.iter().zip(views).position(|(slides, view)| *slides != view.window.is_some());
    ensure!(
        other.is_none(),
        "{}: layer_types has \"{}\" for block {}, but the other keys call for {}: remove the list, which this network does not read",
        values.path.display(),
        if listed[other.unwrap_or(0)] { SLIDING } else { FULL },
        other.unwrap_or(0),
        if listed[other.unwrap_or(0)] { "no window" } else { "a window" }
    );
    Ok(())
}
