//! The packages that exported models are for, and the classes in which transformers loads the families of networks.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::model::vit::stored::StoredNames;
use crate::schema::words;

words! {
    /// The package whose models leave. transformers has renamed the layers of its models in version 5; those of torchvision
    /// leave whole only.
    pub enum Package {
        Timm = "timm",
        OpenClip = "open-clip",
        Torchvision = "torchvision",
        Transformers4 = "transformers-4",
        Transformers5 = "transformers-5",
    }
}

/// The names of a transformers model's layers in one generation of the package.
#[derive(Debug)]
pub struct Style {
    /// The path before the number of a block.
    pub blocks: &'static str,
    pub queries: [&'static str; 3],
    pub attention_proj: &'static str,
    pub fc: &'static str,
    pub gate: &'static str,
    /// The layer that holds gate and value one above the other, where the generation has one in a gated MLP.
    pub packed: Option<&'static str>,
    pub proj: &'static str,
    /// The last layer of a gated MLP.
    pub gated_proj: &'static str,
}

/// A family of networks in transformers.
#[derive(Debug)]
pub struct Family {
    /// The `model_type` of its config.
    pub model_type: &'static str,
    /// The class that an exported model is loaded in, and the path of its network; both differ where there is a projection.
    pub class: &'static str,
    /// The prefix of the network in that class, in versions 4 and 5.
    pub prefix: [&'static str; 2],
    /// The layer of the class that is the classifier; without one, the head stays beside the model.
    pub classifier: Option<&'static str>,
    /// The width of what the classifier reads, as a multiple of the network's width.
    pub reads: i64,
    /// The attribute of the model's output that holds the features.
    pub features: &'static str,
    pub styles: [Style; 2],
}

const SPLIT: [&str; 3] = ["attention.q_proj", "attention.k_proj", "attention.v_proj"];
const QUERY: [&str; 3] = ["attention.attention.query", "attention.attention.key", "attention.attention.value"];
const SELF: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];

const fn style(blocks: &'static str, queries: [&'static str; 3], others: [&'static str; 3]) -> Style {
    let [attention_proj, fc, proj] = others;
    Style {
        blocks,
        queries,
        attention_proj,
        fc,
        gate: "mlp.gate_proj",
        packed: None,
        proj,
        gated_proj: "mlp.down_proj",
    }
}

const VIT: [Style; 2] = [
    style("encoder.layer.", QUERY, ["attention.output.dense", "intermediate.dense", "output.dense"]),
    style("layers.", SPLIT, ["attention.o_proj", "mlp.fc1", "mlp.fc2"]),
];
const DINO: [Style; 2] = [
    Style {
        packed: Some("mlp.weights_in"),
        gated_proj: "mlp.weights_out",
        ..style("encoder.layer.", QUERY, ["attention.output.dense", "mlp.fc1", "mlp.fc2"])
    },
    style("encoder.layer.", SPLIT, ["attention.o_proj", "mlp.fc1", "mlp.fc2"]),
];
const DINO3: [Style; 2] = [
    style("layer.", SPLIT, ["attention.o_proj", "mlp.up_proj", "mlp.down_proj"]),
    style("layer.", SPLIT, ["attention.o_proj", "mlp.up_proj", "mlp.down_proj"]),
];
const TOWER: [Style; 2] = [
    style("encoder.layers.", SELF, ["self_attn.out_proj", "mlp.fc1", "mlp.fc2"]),
    style("encoder.layers.", SELF, ["self_attn.out_proj", "mlp.fc1", "mlp.fc2"]),
];

/// Every family that is exported, as transformers 4.57 and 5.23 name them.
static FAMILIES: [Family; 7] = [
    classifying("vit", "ViTForImageClassification", "vit.", 1, VIT),
    classifying("deit", "DeiTForImageClassification", "deit.", 1, VIT),
    classifying("dinov2", "Dinov2ForImageClassification", "dinov2.", 2, DINO),
    classifying(
        "dinov2_with_registers",
        "Dinov2WithRegistersForImageClassification",
        "dinov2_with_registers.",
        2,
        DINO,
    ),
    Family { prefix: ["", "model."], ..reading("dinov3_vit", "DINOv3ViTModel", "pooler_output", DINO3) },
    Family {
        prefix: ["vision_model.", "vision_model."],
        ..reading("clip_vision_model", "CLIPVisionModelWithProjection", "image_embeds", TOWER)
    },
    Family {
        prefix: ["vision_model.", ""],
        ..reading("siglip_vision_model", "SiglipVisionModel", "pooler_output", TOWER)
    },
];

/// A network of CLIP without its projection.
static UNPROJECTED: Family =
    Family { prefix: ["vision_model.", ""], ..reading("clip_vision_model", "CLIPVisionModel", "pooler_output", TOWER) };

const fn classifying(
    model_type: &'static str,
    class: &'static str,
    prefix: &'static str,
    reads: i64,
    styles: [Style; 2],
) -> Family {
    let prefix = [prefix, prefix];
    Family { model_type, class, prefix, classifier: Some("classifier"), reads, features: "logits", styles }
}

const fn reading(model_type: &'static str, class: &'static str, features: &'static str, styles: [Style; 2]) -> Family {
    Family { model_type, class, prefix: ["", ""], classifier: None, reads: 1, features, styles }
}

impl Family {
    /// Returns the family of a folder of transformers.
    ///
    /// # Errors
    /// Fails if its config cannot be read, or if no class of transformers computes what bella does.
    fn of(config: &Value, names: &StoredNames) -> Result<&'static Family> {
        let outer = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let model_type = match outer {
            "clip" => "clip_vision_model",
            "siglip" => "siglip_vision_model",
            other => other,
        };
        if model_type == "clip_vision_model" && names.name_of("proj.weight").is_none() {
            return Ok(&UNPROJECTED);
        }
        let known: Vec<&str> = FAMILIES.iter().map(|family| family.model_type).collect();
        FAMILIES
            .iter()
            .find(|family| family.model_type == model_type)
            .with_context(|| format!("a {outer} of transformers cannot be exported: known are {}", known.join(", ")))
    }
}

/// The package that will load an exported model, and the names of parameters there.
#[derive(Debug)]
pub struct Target {
    pub package: Package,
    /// The family, for a model of transformers.
    pub family: Option<&'static Family>,
}

impl Target {
    /// Returns the target for a checkpoint with names of the family `naming`; `asked` chooses the package.
    ///
    /// # Errors
    /// Fails if the package has no such models, or if `naming` is that of no package.
    pub fn new(asked: Option<Package>, checkpoint: &Path, naming: &str, names: &StoredNames) -> Result<Target> {
        let shown = checkpoint.display();
        let (known, usual): (&[Package], Package) = match naming {
            "timm" => (&[Package::Timm], Package::Timm),
            "clip" => (&[Package::OpenClip], Package::OpenClip),
            "transformers" => (&[Package::Transformers4, Package::Transformers5], Package::Transformers5),
            _ => (&[Package::Torchvision], Package::Torchvision),
        };
        let package = asked.unwrap_or(usual);
        let words: Vec<String> = known.iter().map(|package| format!("--for {package}")).collect();
        ensure!(
            known.contains(&package),
            "--for {package}: {shown} has {naming} names, which fit {}",
            words.join(" or ")
        );
        let family = match naming {
            "transformers" => {
                let config = super::config::read(checkpoint)?;
                Some(Family::of(&config, names).with_context(|| shown.to_string())?)
            }
            _ => None,
        };
        Ok(Target { package, family })
    }

    /// Checks that adapters fit the package's models.
    ///
    /// # Errors
    /// Fails if no package wraps their layers under names of their own.
    pub fn expect_adapters(&self) -> Result<()> {
        ensure!(
            self.package != Package::Torchvision,
            "adapters do not fit the layers of torchvision's models: --to weights, torchscript and onnx export whole models, and \
             fine-tuned models can be imported"
        );
        Ok(())
    }

    /// Returns 0 for transformers 4 and 1 for later versions.
    pub fn generation(&self) -> usize {
        usize::from(self.package != Package::Transformers4)
    }

    /// Returns the classifier of the package's model that is a trained head; `None` where the head stays beside it.
    pub fn classifier(&self) -> Option<&'static str> {
        match self.package {
            Package::Timm => Some("head"),
            Package::Torchvision => Some("heads.head"),
            Package::OpenClip => None,
            Package::Transformers4 | Package::Transformers5 => self.family.and_then(|family| family.classifier),
        }
    }
}
