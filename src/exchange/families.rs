//! The classes in which transformers loads the families of networks, and the names of layers in them.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::model::network::Slot;
use crate::model::stored::StoredNames;

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
    /// The layers outside of the blocks.
    pub around: &'static [Outer],
    /// A part with blocks of its own.
    pub inner: Option<&'static Inner>,
    /// Whether the class writes texts: its logits are those of tokens.
    pub writes: bool,
}

/// A layer outside of the blocks.
#[derive(Debug)]
pub struct Outer {
    /// Its canonical name.
    pub layer: &'static str,
    /// The start of its path in the class.
    pub prefix: &'static str,
    /// The end of its path, which it has in other classes, too.
    pub end: &'static str,
}

/// A part of a network with blocks of its own.
#[derive(Debug)]
pub struct Inner {
    /// The start of the canonical names of its layers.
    pub part: &'static str,
    /// The component that is in every path of its layers, and in none of other layers.
    pub component: &'static str,
    /// The prefix of its paths in versions 4 and 5.
    pub prefix: [&'static str; 2],
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

const LLAMA: [Style; 2] = [
    style("layers.", SELF, ["self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]),
    style("layers.", SELF, ["self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]),
];

const OUTPUT: Outer = Outer { layer: "lm_head", prefix: "", end: "lm_head" };

/// The layers of LLaVA outside of the blocks.
static AROUND_LLAVA: [Outer; 3] = [
    Outer { layer: "projector.linear_1", prefix: "model.", end: "multi_modal_projector.linear_1" },
    Outer { layer: "projector.linear_2", prefix: "model.", end: "multi_modal_projector.linear_2" },
    OUTPUT,
];

/// The image tower of LLaVA.
static SIGHT: Inner = Inner {
    part: "vision.",
    component: "vision_tower",
    prefix: ["model.vision_tower.vision_model.", "model.vision_tower."],
    styles: TOWER,
};

/// Every family that is exported, as transformers 4.57 and 5.23 name them.
static FAMILIES: [Family; 11] = [
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
    writing("llama", "AutoModelForCausalLM"),
    writing("mistral", "AutoModelForCausalLM"),
    writing("qwen2", "AutoModelForCausalLM"),
    Family {
        prefix: ["model.language_model.", "model.language_model."],
        around: &AROUND_LLAVA,
        inner: Some(&SIGHT),
        ..writing("llava", "LlavaForConditionalGeneration")
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
    let classifier = Some("classifier");
    Family { prefix, classifier, reads, ..reading(model_type, class, "logits", styles) }
}

const fn reading(model_type: &'static str, class: &'static str, features: &'static str, styles: [Style; 2]) -> Family {
    let (prefix, around, inner) = (["", ""], [].as_slice(), None);
    Family { model_type, class, prefix, classifier: None, reads: 1, features, styles, around, inner, writes: false }
}

const fn writing(model_type: &'static str, class: &'static str) -> Family {
    let (prefix, around) = (["model.", "model."], std::slice::from_ref(&OUTPUT));
    Family { prefix, around, writes: true, ..reading(model_type, class, "hidden_states[-1]", LLAMA) }
}

impl Family {
    /// Returns the component of the paths of another part than that of a layer, in which layers end in the same way.
    pub fn stranger(&self, slot: &Slot) -> &'static str {
        let inside = self.inner.is_some_and(|inner| slot.name.starts_with(inner.part));
        if self.writes && !inside { SIGHT.component } else { "text_model" }
    }

    /// Returns the family of a folder of transformers.
    ///
    /// # Errors
    /// Fails if its config cannot be read, or if no class of transformers computes what bella does.
    pub fn of(config: &Value, names: &StoredNames) -> Result<&'static Family> {
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
