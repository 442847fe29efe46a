//! Checks that the canonical parameters of a network are those that its forward pass reads, with the right shapes.
//!
//! Hints from the Python code inside a TorchScript archive (activation, LayerNorm eps and head width) usually only order the
//! candidates that the self-check tries; they decide alone when the archive cannot run.

use anyhow::{Context, Result, bail, ensure};

use crate::machine::fused::QUICK_SLOPE;
use crate::model::network::Parameters;
use crate::model::vit::parts::{Parts, RELATIVE, Readout};
use crate::model::vit::relative::table_rows;
use crate::model::vit::{Activation, Geometry};

/// Checks that every parameter of the forward pass exists and has the right shape.
pub fn check_complete(geometry: &Geometry, parts: &Parts, base: &Parameters) -> Result<()> {
    let Geometry { width, mlp, blocks, .. } = *geometry;
    check_embedding(geometry, parts, base)?;
    check_norm(base, "ln_post", width)?;
    if parts.readout == Readout::Map {
        check_pool(base, width)?;
    }
    if parts.relative {
        check_tables(geometry, parts, base)?;
    }
    for block in 0..blocks {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        if parts.block.layer_scale {
            check_shape(base, &name("ls_1.gamma"), &[width])?;
            check_shape(base, &name("ls_2.gamma"), &[width])?;
        }
        if parts.block.gated {
            check_shape(base, &name("mlp.gate.weight"), &[mlp, width])?;
        }
        if parts.block.keyless_bias {
            check_shape(base, &name("attn.qkv.keyless_bias"), &[2 * width])?;
        }
        if parts.block.attention_norm {
            check_norm(base, &name("attn.norm"), width)?;
        }
        if parts.block.mlp_norm {
            check_norm(base, &name("mlp.norm"), mlp)?;
        }
    }
    check_blocks(base, blocks, width, mlp)?;
    check_alike(base, blocks)
}

/// Checks that a readout of the class token has one to read.
///
/// # Errors
/// Fails if there is no class token.
pub fn check_readout(geometry: &Geometry, parts: &Parts, base: &Parameters) -> Result<()> {
    match parts.readout {
        Readout::Class | Readout::ClassDistillation | Readout::ClassMean => {
            check_shape(base, "class_token", &[geometry.width])
        }
        Readout::Mean | Readout::NormedMean | Readout::Map => Ok(()),
    }
}

/// Checks the tokens, their positions, and the norm and the projection around the blocks.
fn check_embedding(geometry: &Geometry, parts: &Parts, base: &Parameters) -> Result<()> {
    let Geometry { width, grid, output, .. } = *geometry;
    let positions = parts.positioned + grid * grid;
    let registers = base.get("registers").map_or(0, |registers| registers.size()[0]);
    let optional = [
        ("patch.bias", vec![width]),
        ("class_token", vec![width]),
        ("distillation_token", vec![width]),
        ("registers", vec![registers, width]),
        ("position", vec![positions, width]),
        ("ln_pre.weight", vec![width]),
        ("ln_pre.bias", vec![width]),
        ("proj.weight", vec![output, width]),
        ("proj.bias", vec![output]),
    ];
    let there = optional.iter().filter(|(name, _)| base.get(name).is_some());
    there.into_iter().try_for_each(|(name, shape)| check_shape(base, name, shape))?;
    if base.get("ln_pre.weight").is_some() { check_norm(base, "ln_pre", width) } else { Ok(()) }
}

/// Checks the attention pooling.
fn check_pool(base: &Parameters, width: i64) -> Result<()> {
    check_norm(base, "pool.ln", width)?;
    check_shape(base, "pool.query", &[width])?;
    let hidden = base.get("pool.fc.weight").map_or(0, |layer| layer.size()[0]);
    for (layer, rows, columns) in [
        ("q", width, width),
        ("kv", 2 * width, width),
        ("proj", width, width),
        ("fc", hidden, width),
        ("out", width, hidden),
    ] {
        check_shape(base, &format!("pool.{layer}.weight"), &[rows, columns])?;
        check_shape(base, &format!("pool.{layer}.bias"), &[rows])?;
    }
    Ok(())
}

/// Checks that there is a table of relative positions for all blocks or for each block, all of one shape.
fn check_tables(geometry: &Geometry, parts: &Parts, base: &Parameters) -> Result<()> {
    ensure!(
        parts.prefix == 1,
        "its relative positions are those of one class token, but it has {} tokens",
        parts.prefix
    );
    let heads = table_heads(base).context("its table of relative positions is no matrix")?;
    let shape = [table_rows(geometry.grid), heads];
    if base.get(RELATIVE[0]).is_some() {
        check_shape(base, RELATIVE[0], &shape)?;
    }
    let own = base.get(RELATIVE[1]).map_or(0, |_| geometry.blocks);
    (0..own).try_for_each(|block| check_shape(base, &format!("blocks.{block}.attn.relative.weight"), &shape))
}

/// Returns the number of heads, which a table of relative positions tells; `None` if there is no table.
pub fn table_heads(base: &Parameters) -> Option<i64> {
    RELATIVE.iter().find_map(|name| base.get(name)).and_then(|table| table.size2().ok()).map(|(_, heads)| heads)
}

/// Checks that all blocks have the parameters that the first one has, and no others.
fn check_alike(base: &Parameters, blocks: usize) -> Result<()> {
    let of = |block: usize| {
        let prefix = format!("blocks.{block}.");
        base.all().iter().filter_map(|(name, _)| name.strip_prefix(&prefix).map(str::to_string)).collect::<Vec<_>>()
    };
    let first = of(0);
    for block in 1..blocks {
        let other = of(block);
        let odd = first.iter().find(|name| !other.contains(name)).map(|name| (name, "lacks"));
        let odd = odd.or_else(|| other.iter().find(|name| !first.contains(name)).map(|name| (name, "also has")));
        if let Some((name, verb)) = odd {
            bail!("its block {block} {verb} the parameter that bella calls {name}, unlike block 0");
        }
    }
    Ok(())
}

/// Checks that all parameters of `blocks` transformer blocks exist and have the right shape.
pub(super) fn check_blocks(parameters: &Parameters, blocks: usize, width: i64, mlp: i64) -> Result<()> {
    for block in 0..blocks {
        for (layer, rows, columns) in [
            ("attn.qkv", 3 * width, width),
            ("attn.proj", width, width),
            ("mlp.fc", mlp, width),
            ("mlp.proj", width, mlp),
        ] {
            check_shape(parameters, &format!("blocks.{block}.{layer}.weight"), &[rows, columns])?;
            let bias = format!("blocks.{block}.{layer}.bias");
            if layer != "attn.qkv" || parameters.get(&bias).is_some() {
                check_shape(parameters, &bias, &[rows])?;
            }
        }
        for norm in ["ln_1", "ln_2"] {
            check_norm(parameters, &format!("blocks.{block}.{norm}"), width)?;
        }
    }
    Ok(())
}

/// Checks that a layer norm exists and has the right shape.
pub(super) fn check_norm(parameters: &Parameters, norm: &str, width: i64) -> Result<()> {
    check_shape(parameters, &format!("{norm}.weight"), &[width])?;
    check_shape(parameters, &format!("{norm}.bias"), &[width])
}

pub(super) fn check_shape(parameters: &Parameters, name: &str, shape: &[i64]) -> Result<()> {
    let tensor = parameters.get(name).with_context(|| format!("it lacks the parameter that bella calls {name}"))?;
    ensure!(tensor.size() == shape, "its {name} has shape {:?}, not {shape:?}", tensor.size());
    Ok(())
}

/// Hints, the most frequent first.
#[derive(Debug, Default, Clone)]
pub struct Hints {
    pub activation: Option<Activation>,
    pub eps: Option<f64>,
    /// The last axes of reshapes, as candidates for the width of one head.
    pub head_widths: Vec<i64>,
}

impl Hints {
    /// Reads the joined code of an archive.
    pub fn read(code: &str) -> Hints {
        Hints { activation: activation(code), eps: eps(code), head_widths: head_widths(code) }
    }
}

fn activation(code: &str) -> Option<Activation> {
    if code.contains(&QUICK_SLOPE.to_string()) {
        return Some(Activation::QuickGelu);
    }
    let Some(call) = code.split("gelu(").nth(1) else {
        // That of the gates of networks with SwiGLU.
        return code.contains("silu").then_some(Activation::Silu);
    };
    let arguments = call.split(')').next()?;
    Some(if arguments.contains("tanh") { Activation::GeluTanh } else { Activation::Gelu })
}

/// Returns the most frequent number between 1e-13 and 1e-3 in calls of `layer_norm`.
fn eps(code: &str) -> Option<f64> {
    let mut seen: Vec<(f64, usize)> = Vec::new();
    for call in code.split("layer_norm(").skip(1) {
        let arguments = &call[..call.find('\n').unwrap_or(call.len())];
        let number = arguments
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '-'))
            .filter_map(|word| word.parse::<f64>().ok())
            .find(|value| (1e-13..1e-3).contains(value));
        if let Some(value) = number {
            match seen.iter_mut().find(|(known, _)| *known == value) {
                Some((_, count)) => *count += 1,
                None => seen.push((value, 1)),
            }
        }
    }
    seen.into_iter().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

/// Returns the last constants in the lists of `view` and `reshape`, the most frequent first.
fn head_widths(code: &str) -> Vec<i64> {
    let mut seen: Vec<(i64, usize)> = Vec::new();
    for call in code.split("torch.view(").skip(1).chain(code.split("torch.reshape(").skip(1)) {
        let Some(list) = call.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else { continue };
        let Some(last) = list.0.rsplit(',').next().and_then(|word| word.trim().parse::<i64>().ok()) else { continue };
        if last < 2 {
            continue;
        }
        match seen.iter_mut().find(|(known, _)| *known == last) {
            Some((_, count)) => *count += 1,
            None => seen.push((last, 1)),
        }
    }
    seen.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    seen.into_iter().map(|(width, _)| width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_traced_code() {
        let code = "  _4 = torch.layer_norm(x, [192], weight, bias, 9.9999999999999995e-07)\n\
                    _5 = torch.view(q, [2, 17, 3, 3, 64])\n  y = torch.gelu(x, approximate=\"tanh\")\n";
        let hints = Hints::read(code);
        assert_eq!(hints.activation, Some(Activation::GeluTanh));
        assert_eq!(hints.eps, Some(1e-6));
        assert_eq!(hints.head_widths, vec![64]);
        assert_eq!(Hints::read("  y = torch.silu(gate)\n").activation, Some(Activation::Silu));
    }

    #[test]
    fn silence_is_no_hint() {
        let hints = Hints::read("def forward(self, x): return torch.relu(x)");
        assert!(hints.activation.is_none() && hints.eps.is_none() && hints.head_widths.is_empty());
    }
}
