//! Turns an archive's parameter names and shapes into canonical weights and a geometry, or gives the reason why it
//! cannot.

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor};

use super::{Form, Geometry, NAMINGS, Naming, OwnHead};
use crate::model::network::Parameters;

/// The parameters of an archive under canonical names.
pub struct Named {
    pub naming: &'static Naming,
    pub geometry: Geometry,
    pub base: Parameters,
    pub head: Option<OwnHead>,
}

/// Finds the naming that fits, or fails with the reason why none does.
pub fn recognise(parameters: &[(String, Tensor)]) -> Result<Named> {
    ensure!(
        !parameters.is_empty(),
        "the TorchScript module lists no parameters (was it frozen by torch.jit.freeze or traced by tch?): export the \
         unfrozen module"
    );
    for naming in NAMINGS {
        for prefix in naming.prefixes {
            let landmark = format!("{prefix}{}", naming.landmark);
            if parameters.iter().any(|(name, _)| *name == landmark) {
                return named(naming, prefix, parameters)
                    .with_context(|| format!("the checkpoint has {} names, but", naming.key));
            }
        }
    }
    let sample: Vec<&str> = parameters.iter().take(3).map(|(name, _)| name.as_str()).collect();
    bail!(
        "not a vision transformer that bella knows (its parameters are {}, …): known namings are {}",
        sample.join(", "),
        NAMINGS.iter().map(|n| n.key).collect::<Vec<_>>().join(", ")
    )
}

fn named(naming: &'static Naming, prefix: &str, parameters: &[(String, Tensor)]) -> Result<Named> {
    let mut canonical = Vec::new();
    let mut foreign = Vec::new();
    for (name, tensor) in parameters {
        let Some(inner) = name.strip_prefix(prefix) else { continue };
        match (naming.canonical)(inner) {
            Some((known, form)) => canonical.push((known, shaped(tensor, form))),
            None => foreign.push(name.as_str()),
        }
    }
    ensure!(
        foreign.is_empty(),
        "it also has {} ({} such): a part that a plain pre-norm vision transformer does not have, so bella refuses it",
        foreign[0],
        foreign.len()
    );
    canonical.sort_by_key(|(name, _)| order_key(name));
    let head = take_head(&mut canonical)?;
    let geometry = geometry(&canonical)?;
    let base = Parameters::new(canonical);
    check_complete(&geometry, &base)?;
    Ok(Named { naming, geometry, base, head })
}

/// Returns the canonical tensor in f32, sharing no memory with the stored one.
pub(super) fn shaped(tensor: &Tensor, form: Form) -> Tensor {
    let tensor = tensor.detach().to_kind(Kind::Float);
    match form {
        Form::AsIs => tensor.copy(),
        Form::Squeezed => {
            let mut squeezed = tensor.copy();
            while squeezed.dim() > 1 && squeezed.size()[0] == 1 {
                squeezed = squeezed.squeeze_dim(0);
            }
            squeezed
        }
        Form::Flattened => tensor.flatten(1, -1).copy(),
        Form::Transposed => tensor.tr().contiguous(),
    }
}

/// Returns the order of a parameter in the forward pass: patch, class token, positions, ln_pre, blocks, ln_post, proj,
/// head.
fn order_key(name: &str) -> (usize, usize, usize, bool) {
    const PARTS: [&str; 8] = ["patch", "class_token", "position", "ln_pre", "blocks", "ln_post", "proj", "head"];
    const LAYERS: [&str; 6] = ["ln_1", "attn.qkv", "attn.proj", "ln_2", "mlp.fc", "mlp.proj"];
    let part = PARTS.iter().position(|p| name == *p || name.starts_with(&format!("{p}."))).unwrap_or(PARTS.len());
    let mut block = 0;
    let mut layer = 0;
    if let Some((index, rest)) = name.strip_prefix("blocks.").and_then(|r| r.split_once('.')) {
        block = index.parse().unwrap_or(usize::MAX);
        layer = LAYERS.iter().position(|l| rest.starts_with(&format!("{l}."))).unwrap_or(LAYERS.len());
    }
    (part, block, layer, name.ends_with(".bias"))
}

fn take_head(parameters: &mut Vec<(String, Tensor)>) -> Result<Option<OwnHead>> {
    let mut take = |wanted: &str| {
        let at = parameters.iter().position(|(name, _)| name == wanted)?;
        Some(parameters.remove(at).1)
    };
    let (weight, bias) = (take("head.weight"), take("head.bias"));
    let Some(weight) = weight else { return Ok(None) };
    let (classes, _) = weight.size2().context("head.weight has another shape than [classes, width]")?;
    let bias = bias.unwrap_or_else(|| Tensor::zeros([classes], (Kind::Float, weight.device())));
    Ok(Some(OwnHead { weight, bias }))
}

fn geometry(parameters: &[(String, Tensor)]) -> Result<Geometry> {
    let size = |name: &str| -> Result<Vec<i64>> {
        let found = parameters.iter().find(|(known, _)| known == name);
        Ok(found.with_context(|| format!("it lacks the parameter that bella calls {name}"))?.1.size())
    };
    let (patch_weight, position, fc) = (size("patch.weight")?, size("position")?, size("blocks.0.mlp.fc.weight")?);
    ensure!(patch_weight.len() == 2 && position.len() == 2 && fc.len() == 2, "its parameters have unusual shapes");
    let width = patch_weight[0];
    let patch = ((patch_weight[1] / 3) as f64).sqrt().round() as i64;
    ensure!(patch_weight[1] == 3 * patch * patch, "its patch embedding is not a square one of three channels");
    let grid = ((position[0] - 1) as f64).sqrt().round() as i64;
    ensure!(
        position[0] == grid * grid + 1,
        "its {} position embeddings are not a class token and a square grid",
        position[0]
    );
    let blocks = block_count(parameters);
    let output = size("proj.weight").map_or(width, |s| s[0]);
    Ok(Geometry { width, blocks, patch, grid, mlp: fc[0], output })
}

/// Checks that every parameter of the forward pass exists and has the right shape.
fn check_complete(geometry: &Geometry, base: &Parameters) -> Result<()> {
    let Geometry { width, mlp, blocks, .. } = *geometry;
    check_shape(base, "class_token", &[width])?;
    for norm in ["ln_post"].into_iter().chain(base.get("ln_pre.weight").map(|_| "ln_pre")) {
        check_norm(base, norm, width)?;
    }
    check_blocks(base, blocks, width, mlp)
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
            check_shape(parameters, &format!("blocks.{block}.{layer}.bias"), &[rows])?;
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

/// Returns one more than the largest block number among the canonical names.
pub(super) fn block_count(parameters: &[(String, Tensor)]) -> usize {
    let number = |name: &str| name.strip_prefix("blocks.")?.split_once('.')?.0.parse::<usize>().ok();
    parameters.iter().filter_map(|(name, _)| number(name)).max().map_or(0, |last| last + 1)
}
