//! Turns an archive's parameter names and shapes into canonical weights and a geometry, or gives the reason why it
//! cannot.

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor};

use super::complete::check_complete;
use super::fuse::Loose;
use super::naming::Naming;
use super::{NAMINGS, text};
use crate::model::network::Parameters;
use crate::model::stored::{Form, StoredNames};
use crate::model::vit::parts::{Parts, RELATIVE, Readout};
use crate::model::vit::relative::grid_of;
use crate::model::vit::required::{Required, block_count};
use crate::model::vit::text::PROJECTION;
use crate::model::vit::{Geometry, OwnHead};

/// The parameters of an archive under canonical names.
pub struct Named {
    pub naming: &'static Naming,
    /// The prefix of the names of the image tower.
    pub prefix: String,
    pub geometry: Geometry,
    pub parts: Parts,
    pub base: Parameters,
    pub head: Option<OwnHead>,
    /// The names that the parameters have in the checkpoint.
    pub names: StoredNames,
}

impl Named {
    /// Returns the number of classes of its own classifier, if it has one.
    pub fn classes(&self) -> Option<i64> {
        self.head.as_ref().map(|head| head.weight.size()[0])
    }

    /// Returns the number of registers.
    pub fn registers(&self) -> i64 {
        self.base.get("registers").map_or(0, |registers| registers.size()[0])
    }

    /// Makes the classifier the projection of the features.
    pub fn project_by_head(&mut self) {
        let Some(OwnHead { weight, bias }) = self.head.take() else { return };
        self.geometry.output = weight.size()[0];
        self.names.project_by_head();
        let mut all: Vec<(String, Tensor)> =
            self.base.all().iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        all.extend([("proj.weight".to_string(), weight), ("proj.bias".to_string(), bias)]);
        self.base = Parameters::new(all);
    }
}

/// The facts about a network that are known before its parameters are looked at.
#[derive(Clone, Copy, Default)]
pub struct Expected<'a> {
    /// The number of pixels per side, which is needed if no position embeddings tell the grid.
    pub image_size: Option<i64>,
    /// The naming that is tried first.
    pub naming: Option<&'static str>,
    /// Returns the parameters that a network with names of a naming must have, if something decides them.
    pub required: Option<RequiredBy<'a>>,
}

/// A function from a naming to the parameters that a network with its names must have.
pub type RequiredBy<'a> = &'a dyn Fn(&Naming) -> Option<Required>;

/// Finds the naming that fits, or says why none does.
///
/// # Errors
/// Fails if there is none, or if parameters are missing or left over.
pub fn recognise(parameters: &[(String, Tensor)], expected: Expected) -> Result<Named> {
    ensure!(!parameters.is_empty(), "it has no parameters");
    let is_first = |naming: &&&Naming| expected.naming == Some(naming.key);
    let others = NAMINGS.iter().filter(|naming| !is_first(naming));
    for naming in NAMINGS.iter().filter(is_first).chain(others) {
        let landmarks = (naming.landmarks)();
        for prefix in (naming.prefixes)() {
            let is_landmark = |name: &str| name.strip_prefix(prefix).is_some_and(|inner| landmarks.contains(&inner));
            if parameters.iter().any(|(name, _)| is_landmark(name)) {
                return named(naming, prefix, parameters, expected)
                    .with_context(|| format!("the checkpoint has {} names, but", naming.key));
            }
        }
    }
    if let Some(naming) = NAMINGS.iter().find(is_first) {
        bail!("it lacks {}, by which the names of {} are known", (naming.landmarks)().join(" or "), naming.key);
    }
    let sample: Vec<&str> = parameters.iter().take(3).map(|(name, _)| name.as_str()).collect();
    bail!(
        "not a vision transformer that bella knows (its parameters are {}, …): known namings are {}",
        sample.join(", "),
        NAMINGS.iter().map(|n| n.key).collect::<Vec<_>>().join(", ")
    )
}

fn named(naming: &'static Naming, prefix: &str, parameters: &[(String, Tensor)], expected: Expected) -> Result<Named> {
    let (mut canonical, mut names) = renamed(naming, prefix, parameters)?;
    let blocks = block_count(&canonical)?;
    Loose(&mut canonical).fuse(blocks)?;
    match expected.required.map(|of| of(naming)) {
        Some(Some(required)) => required.check(&canonical)?,
        Some(None) => Required::check_untold(&canonical)?,
        None => {}
    }
    // The name makes the order total: theta has the columns of whole networks in it.
    canonical.sort_by(|(a, _), (b, _)| (order_key(a), a).cmp(&(order_key(b), b)));
    let head = take_head(&mut canonical)?;
    let is_mean = take_mean_norm(&mut canonical);
    let base = Parameters::new(canonical);
    names.infer(&base);
    let mut parts = Parts::of(&base)?;
    if is_mean {
        parts.readout = Readout::Mean;
    }
    if let Some(double) = head.as_ref().and_then(|own| double_readout(own, &base)) {
        parts.readout = double;
    }
    let geometry = geometry(&base, &parts, expected.image_size)?;
    check_complete(&geometry, &parts, &base)?;
    if let Some(OwnHead { weight, .. }) = &head {
        let (read, width) = (weight.size()[1], geometry.output);
        ensure!(read == width, "its classifier reads {read} numbers, but its features are {width}");
    }
    Ok(Named { naming, prefix: prefix.to_string(), geometry, parts, base, head, names })
}

/// Returns the parameters under canonical names, in the archive's order, with the names that they have in the archive. Of a
/// text tower beside it, the projection alone has a name here, since particles may train it.
///
/// # Errors
/// Fails if the archive has a parameter that the naming does not know.
fn renamed(
    naming: &Naming,
    prefix: &str,
    parameters: &[(String, Tensor)],
) -> Result<(Vec<(String, Tensor)>, StoredNames)> {
    let mut canonical = Vec::new();
    let mut foreign = Vec::new();
    let mut names = StoredNames::default();
    for (name, tensor) in parameters {
        let found = match name.strip_prefix(prefix) {
            Some(inner) => (naming.canonical)(inner),
            None => (naming.beside)(name),
        };
        match found {
            Some((_, Form::Ignored)) => {
                if let Some(form) = text::projection(name) {
                    names.push(name, PROJECTION, form);
                }
            }
            Some((known, form)) => {
                ensure!(
                    !canonical.iter().any(|(before, _)| *before == known),
                    "it has {name} besides another parameter that is {known} here: remove one of them"
                );
                names.push(name, &known, form);
                canonical.push((known, form.shaped(name, tensor)?));
            }
            None => foreign.push(name.as_str()),
        }
    }
    ensure!(
        foreign.is_empty(),
        "it also has {} ({} such): a part that none of the vision transformers that bella computes has, so bella refuses it",
        foreign[0],
        foreign.len()
    );
    Ok((canonical, names))
}

/// Returns what a classifier twice as wide as the network reads: DINOv2's the class token and the mean of the patches,
/// DeiT's two tokens. A classifier of another width reads one thing.
fn double_readout(own: &OwnHead, base: &Parameters) -> Option<Readout> {
    let width = base.get("patch.weight").map_or(0, |patch| patch.size()[0]);
    let is_double = own.weight.size()[1] == 2 * width;
    let distilled = base.get("distillation_token").is_some();
    is_double.then_some(if distilled { Readout::ClassDistillation } else { Readout::ClassMean })
}

/// Returns the order of a parameter in the forward pass: patch, class token, positions, ln_pre, blocks, ln_post, proj,
/// head.
fn order_key(name: &str) -> (usize, usize, usize, bool) {
    const PARTS: [&str; 12] = [
        "patch",
        "class_token",
        "distillation_token",
        "registers",
        "position",
        "relative",
        "ln_pre",
        "blocks",
        "ln_post",
        "pool",
        "proj",
        "head",
    ];
    const LAYERS: [&str; 12] = [
        "ln_1",
        "attn.qkv",
        "attn.relative",
        "attn.norm",
        "attn.proj",
        "ls_1",
        "ln_2",
        "mlp.gate",
        "mlp.fc",
        "mlp.norm",
        "mlp.proj",
        "ls_2",
    ];
    let part = PARTS.iter().position(|p| name == *p || name.starts_with(&format!("{p}."))).unwrap_or(PARTS.len());
    let mut block = 0;
    let mut layer = 0;
    if let Some((index, rest)) = name.strip_prefix("blocks.").and_then(|r| r.split_once('.')) {
        block = index.parse().unwrap_or(usize::MAX);
        layer = LAYERS.iter().position(|l| rest.starts_with(&format!("{l}."))).unwrap_or(LAYERS.len());
    }
    (part, block, layer, name.ends_with("bias"))
}

fn take_head(parameters: &mut Vec<(String, Tensor)>) -> Result<Option<OwnHead>> {
    let mut loose = Loose(parameters);
    let mut head = |name: &str| -> Result<Option<OwnHead>> {
        let (weight, bias) = (loose.take(&format!("{name}.weight")), loose.take(&format!("{name}.bias")));
        let Some(weight) = weight else { return Ok(None) };
        let (classes, _) = weight.size2().context("head.weight has another shape than [classes, width]")?;
        let bias = bias.unwrap_or_else(|| Tensor::zeros([classes], (Kind::Float, weight.device())));
        let found = bias.size();
        ensure!(found == [classes], "its {name}.bias has the shape {found:?}, but {name}.weight has {classes} classes");
        Ok(Some(OwnHead { weight, bias }))
    };
    Ok(match (head("head")?, head("head_dist")?) {
        // DeiT predicts with the mean of both heads' logits, which equals one head on both tokens side by side.
        (Some(class), Some(distilled)) => {
            let [own, other] = [&class, &distilled].map(|head| head.weight.size());
            ensure!(own == other, "its two classifiers have the shapes {own:?} and {other:?}: they must be the same");
            Some(OwnHead {
                weight: Tensor::cat(&[class.weight, distilled.weight], 1) / 2.0,
                bias: (class.bias + distilled.bias) / 2.0,
            })
        }
        (class, _) => class,
    })
}

/// Renames timm's `fc_norm`, its last norm where it follows the mean of the patches, and returns whether there is one.
fn take_mean_norm(parameters: &mut [(String, Tensor)]) -> bool {
    let mut found = false;
    for (name, _) in parameters.iter_mut().filter(|(name, _)| name.starts_with("ln_mean.")) {
        *name = name.replace("ln_mean.", "ln_post.");
        found = true;
    }
    found
}

/// Returns the geometry that names and shapes imply. `image_size`, which a config states, is needed if no position embeddings tell the
/// grid, and tells what no patch covers.
fn geometry(parameters: &Parameters, parts: &Parts, image_size: Option<i64>) -> Result<Geometry> {
    let size = |name: &str| -> Result<Vec<i64>> {
        Ok(parameters.get(name).with_context(|| format!("it lacks the parameter that bella calls {name}"))?.size())
    };
    let (patch_weight, fc) = (size("patch.weight")?, size("blocks.0.mlp.fc.weight")?);
    ensure!(patch_weight.len() == 2 && fc.len() == 2, "its parameters have unusual shapes");
    let width = patch_weight[0];
    let patch = ((patch_weight[1] / 3) as f64).sqrt().round() as i64;
    ensure!(patch_weight[1] == 3 * patch * patch, "its patch embedding is not a square one of three channels");
    let table = RELATIVE.iter().find_map(|name| parameters.get(name)).map(|table| table.size()[0]);
    let grid = match (parameters.get("position"), table) {
        (Some(position), _) => ((position.size()[0] - parts.positioned) as f64).sqrt().round() as i64,
        (None, Some(rows)) => grid_of(rows)
            .with_context(|| format!("its table of relative positions has {rows} rows, which no grid has"))?,
        (None, None) => {
            let size = image_size.context("it has no position embeddings, and nothing else tells its image size")?;
            ensure!(size % patch == 0, "its image size {size} is no multiple of its patch size {patch}");
            size / patch
        }
    };
    let blocks = block_count(parameters.all())?;
    let features = size("proj.weight").map_or(width, |s| s[0]);
    let two = matches!(parts.readout, Readout::ClassMean | Readout::ClassDistillation);
    let output = if two { 2 * width } else { features };
    // A convolution by patches leaves out what no whole patch covers: SigLIP sees 378 of 384 pixels by patches of 14.
    let margin = image_size.map(|size| size - grid * patch).filter(|rest| (0..patch).contains(rest)).unwrap_or(0);
    Ok(Geometry { width, blocks, patch, grid, margin, mlp: fc[0], output })
}
