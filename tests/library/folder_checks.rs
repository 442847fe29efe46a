//! A folder's config decides which tensors there must be, and what it says must be true of them: whatever is missing, left over or
//! contradicted is refused by name.

use std::path::{Path, PathBuf};

use crate::common::{Place, assert_has, fixture};
use bella::model::folder;
use bella::model::recognition::identify::Fixed;
use bella::model::vit::Activation;
use serde_json::{Value, json};
use tch::Tensor;

/// The folders of every family, without the reference that would betray what is missing.
fn families() -> Vec<String> {
    let all = std::fs::read_dir(fixture("folders")).unwrap().flatten();
    let mut names: Vec<String> = all.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() >= 37, "{names:?}");
    names
}

/// open_clip's configs of timm's towers name an architecture, and the small ones here have other heads than the published ones.
fn fixed(name: &str) -> Fixed {
    let is_small = ["open-clip-eva02", "open-clip-siglip", "open-clip-timm", "open-clip-timm-root"].contains(&name);
    Fixed { heads: is_small.then_some(2), ..Fixed::default() }
}

/// Copies a folder without its reference.
fn copy(place: &Place, name: &str) -> PathBuf {
    let folder = place.path("copy");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(fixture("folders").join(name)).unwrap().flatten() {
        if file.file_name() != "reference.safetensors" {
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
    folder
}

/// Copies a folder and changes its config.
fn configured(place: &Place, name: &str, change: impl Fn(&mut Value)) -> PathBuf {
    let folder = copy(place, name);
    let path = folder.join(if name.starts_with("open-clip") { "open_clip_config.json" } else { "config.json" });
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
    folder
}

/// Why one of the two towers is refused; an empty text if neither is.
fn refusal(folder: &Path, fixed: &Fixed) -> String {
    let image = folder::identify(folder, fixed).err();
    let why = image.or_else(|| folder::identify_text(folder, fixed).err());
    why.map_or(String::new(), |why| format!("{why:#}"))
}

/// Tensors that images and texts never go through.
fn is_unused(name: &str) -> bool {
    ["mask_token", "relative_position_index", "pooler.dense.weight", "pooler.dense.bias", "position_ids"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The number of the block that a tensor belongs to.
fn block(name: &str) -> Option<usize> {
    name.split('.').find_map(|part| part.parse().ok())
}

#[test]
fn every_tensor_that_is_missing_is_refused_by_name() {
    tch::set_num_threads(1);
    let place = Place::new();
    let mut removed = 0;
    for name in families() {
        let folder = copy(&place, &name);
        assert_eq!(refusal(&folder, &fixed(&name)), "", "{name}: whole");
        let weights = folder.join("model.safetensors");
        let all = Tensor::read_safetensors(&weights).unwrap();
        for (tensor, _) in &all {
            let others: Vec<(&str, &Tensor)> =
                all.iter().filter(|(other, _)| other != tensor).map(|(other, t)| (other.as_str(), t)).collect();
            Tensor::write_safetensors(&others, &weights).unwrap();
            let line = refusal(&folder, &fixed(&name));
            if is_unused(tensor) {
                assert_eq!(line, "", "{name}: without {tensor}");
                continue;
            }
            let named = ["it lacks", "it has no scalar logit_"].iter().any(|start| line.contains(start));
            assert!(named && !line.contains('\n'), "{name}: without {tensor}: {line:?}");
            let part = if tensor.ends_with("bias") { "bias" } else { "" };
            let block = block(tensor).map_or(String::new(), |block| format!("blocks.{block}."));
            assert!(line.contains(part), "{name}: without {tensor}: {line}");
            // A family is known by a tensor of its own, which then is named as it is.
            assert!(line.contains(&block) || line.contains(tensor.as_str()), "{name}: without {tensor}: {line}");
            removed += 1;
        }
    }
    println!("{removed} tensors were missed");
    assert!(removed > 1000, "{removed}");
}

/// It is the classifier that bella does not compute, and not the names of its classes.
#[test]
fn a_classifier_on_two_towers_is_refused_as_one() {
    let place = Place::new();
    let folder = configured(&place, "hf-siglip-both", |config| {
        config["id2label"] = json!({ "0": "ant", "1": "bee" });
        config["label2id"] = json!({ "ant": 0, "bee": 1 });
    });
    assert_eq!(refusal(&folder, &Fixed::default()), "");
    let weights = folder.join("model.safetensors");
    let mut all = Tensor::read_safetensors(&weights).unwrap();
    let width = all.iter().find(|(name, _)| name.ends_with("post_layernorm.bias")).unwrap().1.size()[0];
    all.push(("classifier.weight".into(), Tensor::zeros([2, width], tch::kind::FLOAT_CPU)));
    all.push(("classifier.bias".into(), Tensor::zeros([2], tch::kind::FLOAT_CPU)));
    Tensor::write_safetensors(&all, &weights).unwrap();
    assert_has(&refusal(&folder, &Fixed::default()), &["the classifier of a siglip_vision_model", "use [head.linear]"]);
}

/// Where nothing but the user describes the network, what every network of such names has.
#[test]
fn weights_without_a_config_lack_nothing_that_can_be_told() {
    let place = Place::new();
    let told = Fixed { heads: Some(2), activation: Some(Activation::Gelu), eps: Some(1e-6), ..Fixed::default() };
    for (name, tensor, says) in [
        ("timm-vit", "patch_embed.proj.bias", "patch.bias"),
        ("timm-vit", "head.bias", "head.bias"),
        ("timm-vit", "head.weight", "head.weight"),
        ("timm-vit", "blocks.1.attn.qkv.bias", "attn.qkv.bias"),
        ("open-clip", "visual.ln_pre.bias", "ln_pre.bias"),
        ("hf-clip", "pre_layrnorm.weight", "ln_pre.weight"),
        ("hf-vit", "layer.0.attention.attention.query.bias", "blocks.0.attn.q.bias"),
    ] {
        let folder = copy(&place, name);
        let config = if name.starts_with("open-clip") { "open_clip_config.json" } else { "config.json" };
        std::fs::remove_file(folder.join(config)).unwrap();
        assert!(folder::identify(&folder, &told).is_ok(), "{name}: {}", refusal(&folder, &told));
        let weights = folder.join("model.safetensors");
        let mut all = Tensor::read_safetensors(&weights).unwrap();
        let count = all.len();
        all.retain(|(known, _)| !known.ends_with(tensor));
        assert_eq!(all.len() + 1, count, "{name}: {tensor}");
        Tensor::write_safetensors(&all, &weights).unwrap();
        assert_has(&refusal(&folder, &told), &["lacks the parameter that bella calls", says]);
    }
}

/// A damaged file may have tensors of any shape, which are named as the file names them.
#[test]
fn tensors_of_shapes_that_no_network_has_are_refused_by_name() {
    let place = Place::new();
    let cases: &[(&str, &str, &[i64], &str)] = &[
        (
            "hf-vit",
            "vit.embeddings.patch_embeddings.projection.weight",
            &[16],
            "has the shape [16]: must have at least two axes",
        ),
        (
            "hf-vit",
            "vit.embeddings.patch_embeddings.projection.weight",
            &[16, 3, 0, 0],
            "has the shape [16, 3, 0, 0]: must have",
        ),
        ("hf-vit", "vit.embeddings.position_embeddings", &[], "has the shape []: must have at least one axis"),
        ("hf-dinov2-registers", "embeddings.register_tokens", &[16], "has the shape [16]: must have at least two axes"),
        ("hf-beit", "relative_position_bias_table", &[], "has the shape []: must have at least one axis"),
        ("open-clip", "visual.proj", &[2, 2, 2], "`visual.proj` has the shape [2, 2, 2]: must have two axes"),
        ("open-clip", "text_projection", &[2, 2, 2], "`text_projection` has the shape [2, 2, 2]: must have two axes"),
        ("hf-vit", "classifier.weight", &[3, 5], "its classifier reads 5 numbers, but its features are 16"),
        ("hf-vit", "classifier.bias", &[5], "its head.bias has the shape [5], but head.weight has 3 classes"),
        ("hf-deit-distilled", "distillation_classifier.weight", &[2, 16], "head_dist.bias has the shape [3]"),
        ("hf-clip-both", "logit_scale", &[], "its exp(logit_scale) is NaN: must be a finite number"),
    ];
    for (name, end, shape, says) in cases {
        let folder = copy(&place, name);
        let weights = folder.join("model.safetensors");
        let mut all = Tensor::read_safetensors(&weights).unwrap();
        let (_, tensor) = all.iter_mut().find(|(stored, _)| stored.ends_with(end)).unwrap();
        *tensor = Tensor::full(*shape, f64::NAN, tch::kind::FLOAT_CPU);
        Tensor::write_safetensors(&all, &weights).unwrap();
        let line = refusal(&folder, &fixed(name));
        assert!(line.contains(says) && !line.contains('\n'), "{name}: {end}: {line:?}");
    }
    let folder = copy(&place, "hf-deit-distilled");
    let weights = folder.join("model.safetensors");
    let mut all = Tensor::read_safetensors(&weights).unwrap();
    for (name, tensor) in all.iter_mut().filter(|(name, _)| name.starts_with("distillation_classifier.")) {
        *tensor = if name.ends_with("bias") { tensor.narrow(0, 0, 2) } else { tensor.narrow(0, 0, 2).copy() };
    }
    Tensor::write_safetensors(&all, &weights).unwrap();
    assert_has(&refusal(&folder, &Fixed::default()), &["its two classifiers have the shapes [3, 16] and [2, 16]"]);
}

/// Nothing is made for each block before it is known that there may be as many.
#[test]
fn a_block_of_an_impossible_number_is_refused_at_once() {
    let place = Place::new();
    for number in [99_999_999_999, u64::MAX] {
        let folder = copy(&place, "hf-vit");
        let weights = folder.join("model.safetensors");
        let mut all = Tensor::read_safetensors(&weights).unwrap();
        all.push((
            format!("vit.encoder.layer.{number}.layernorm_before.weight"),
            Tensor::zeros([16], tch::kind::FLOAT_CPU),
        ));
        Tensor::write_safetensors(&all, &weights).unwrap();
        let own = format!("it has the parameter that bella calls blocks.{number}.ln_1.weight, but");
        assert_has(&refusal(&folder, &Fixed::default()), &[&own, "blocks are missing"]);
    }
}

/// Sizes and parts that a config states are those of the weights.
#[test]
fn configs_that_contradict_the_weights_are_refused_by_name() {
    let place = Place::new();
    let cases: &[(&str, &str, Value, &str)] = &[
        ("hf-vit", "/intermediate_size", json!(64), "intermediate_size = 64, but the weights have 32"),
        ("hf-vit", "/id2label", json!({ "0": "a", "1": "b" }), "id2label = 2, but the weights have 3"),
        ("timm-vit", "/model_args/mlp_ratio", json!(1e300), "its product with the width 16 must be at most 1048576"),
        ("hf-dinov2", "/mlp_ratio", json!(9.2e18), "its product with the width 16 must be at most 1048576"),
        ("open-clip", "/model_cfg/vision_cfg/mlp_ratio", json!(9.2e18), "must be at most 1048576"),
        ("hf-vit", "/id2label", json!(["a", "b", "c"]), "id2label = [\"a\",\"b\",\"c\"]: must be a table of names"),
        ("hf-vit", "/num_labels", json!(4), "num_labels = 4, but id2label has 3 names: they must be as many"),
        ("hf-vit", "/hidden_act", json!(5), "hidden_act = \"(a value that is no text)\" is none that bella computes"),
        ("hf-clip-both", "/vision_config", json!("vit"), "is \"vit\": must be a table"),
        ("hf-clip-both", "/text_config", json!([1]), "a text tower: is [1]: must be a table"),
        ("timm-vit", "/model_args", json!([1]), "model_args = [1]: must be a table of arguments"),
        ("timm-vit", "/pretrained_cfg", json!("x"), "pretrained_cfg: is \"x\": must be a table"),
        ("open-clip", "/model_cfg/quick_gelu", json!("yes"), "quick_gelu = \"yes\": must be true or false"),
        ("open-clip", "/model_cfg/vision_cfg/act_kwargs", json!(3), "act_kwargs: is 3: must be a table"),
        ("open-clip", "/model_cfg/vision_cfg/pool_type", json!(3), "which bella does not compute for open_clip's own"),
        (
            "open-clip",
            "/model_cfg/text_cfg/no_causal_mask",
            json!("no"),
            "no_causal_mask = \"no\": must be true or false",
        ),
        (
            "open-clip",
            "/model_cfg/text_cfg/tokenizer_mode",
            json!("clips"),
            "tokenizer_mode = \"clips\": a key that bella",
        ),
        ("hf-vit", "/qkv_bias", json!(false), "blocks.0.attn.qkv.bias, which does not belong"),
        ("hf-vit", "/model_type", json!("deit"), "calls distillation_token, which belongs"),
        (
            "hf-vit",
            "/model_type",
            json!("dinov2"),
            "encoder_stride = 16: a key that bella does not know for a network of",
        ),
        ("hf-mae", "/model_type", json!("beit"), "decoder_hidden_size = 512: a key that bella does not know"),
        ("hf-dinov2", "/model_type", json!("dinov2_with_registers"), "calls registers, which belongs"),
        ("hf-vit", "/num_hidden_layers", json!(3), "num_hidden_layers = 3, but the weights have 2"),
        ("hf-vit", "/num_channels", json!(1), "num_channels = 1: bella reads images of three colours"),
        ("hf-vit", "/image_size", json!(32), "image_size = 32, but the weights have 16"),
        ("hf-data2vec", "/model_type", json!("beit"), "begin with `data2vec_vision.`, but those of model_type beit"),
        ("hf-beit", "/use_mean_pooling", json!(false), "calls ln_post.weight, which belongs"),
        ("hf-beit", "/use_absolute_position_embeddings", json!(true), "calls position, which belongs"),
        (
            "hf-beit",
            "/use_relative_position_bias",
            json!(false),
            "blocks.0.attn.relative.weight, which does not belong",
        ),
        ("hf-beit", "/layer_scale_init_value", json!(0), "blocks.0.ls_1.gamma, which does not belong"),
        ("hf-dinov2", "/mlp_ratio", json!(4), "mlp_ratio = 64, but the weights have 32"),
        ("hf-dinov2-swiglu", "/use_swiglu_ffn", json!(false), "blocks.0.mlp.gate"),
        ("hf-dinov2-registers", "/num_register_tokens", json!(4), "num_register_tokens = 4, but the weights have 3"),
        ("hf-dinov3", "/num_register_tokens", json!(0), "num_register_tokens = 0, but the weights have 3"),
        ("hf-dinov3", "/key_bias", json!(true), "calls blocks.0.attn.k.bias, which belongs"),
        ("hf-clip", "/projection_dim", json!(24), "projection_dim = 24, but the weights have 12"),
        ("hf-clip-both", "/projection_dim", json!(24), "projection_dim = 24, but the weights have 12"),
        ("hf-clip-both", "/text_config/intermediate_size", json!(48), "intermediate_size = 48 of the text tower"),
        ("hf-clip-both", "/text_config/vocab_size", json!(21), "vocab_size = 21 of the text tower"),
        ("hf-clip-both", "/text_config/eos_token_id", json!(7), "eos_token_id = 7 of the text tower"),
        ("hf-siglip", "/vision_use_head", json!(false), "vision_use_head = false"),
        ("hf-siglip-both", "/text_config/num_hidden_layers", json!(3), "num_hidden_layers = 3 of the text tower"),
        ("open-clip", "/model_cfg/embed_dim", json!(16), "embed_dim = 16, but the weights have 12"),
        ("open-clip", "/model_cfg/vision_cfg/width", json!(32), "width = 32, but the weights have 16"),
        ("open-clip", "/model_cfg/vision_cfg/layers", json!(12), "layers = 12, but the weights have 2"),
        ("open-clip", "/model_cfg/vision_cfg/patch_size", json!(8), "patch_size = 8, but the weights have 4"),
        ("open-clip", "/model_cfg/vision_cfg/mlp_ratio", json!(4), "width * mlp_ratio = 64, but the weights have 32"),
        ("open-clip", "/model_cfg/vision_cfg/head_width", json!(7), "head_width = 7, which does not divide width = 16"),
        ("open-clip", "/model_cfg/vision_cfg/no_ln_pre", json!(true), "calls ln_pre.bias, which does not belong"),
        ("open-clip", "/model_cfg/text_cfg/width", json!(24), "text_cfg.width = 24, but the weights have 12"),
        ("open-clip", "/model_cfg/text_cfg/context_length", json!(77), "text_cfg.context_length = 77"),
        ("open-clip", "/model_cfg/init_logit_bias", json!(-10), "it has no scalar logit_bias"),
        ("open-clip-siglip", "/model_cfg/init_logit_bias", json!(null), "it has a scalar logit_bias"),
        (
            "open-clip-timm",
            "/model_cfg/vision_cfg/timm_proj_bias",
            json!(false),
            "calls proj.bias, which does not belong",
        ),
        ("open-clip-timm", "/model_cfg/vision_cfg/timm_proj", json!("none"), "calls proj."),
        ("open-clip-timm", "/model_cfg/embed_dim", json!(16), "embed_dim = 16, but the weights have 12"),
        ("timm-vit", "/num_classes", json!(4), "num_classes = 4, but timm builds this network for 3"),
        ("timm-vit", "/model_args/num_classes", json!(4), "num_classes = 3, but timm builds this network for 4"),
        ("timm-vit", "/num_features", json!(32), "num_features = 32, but the weights have 16"),
        ("timm-vit", "/model_args/mlp_ratio", json!(4), "hidden width of the MLP 64 belongs to the architecture"),
        ("timm-vit", "/model_args/qkv_bias", json!(false), "attn.qkv.bias, which does not belong"),
        ("timm-vit", "/model_args/class_token", json!(false), "global_pool = \"token\" without a class token"),
        ("timm-vit", "/model_args/reg_tokens", json!(2), "calls registers, which belongs"),
        ("timm-vit", "/model_args/pre_norm", json!(true), "calls ln_pre.weight, which belongs"),
        ("timm-vit", "/model_args/fc_norm", json!(true), "calls ln_mean.weight, which belongs"),
        ("timm-vit", "/architecture", json!("deit3_base_patch16_224"), "which belongs to such a network"),
        ("timm-eva02", "/model_args/swiglu_mlp", json!(false), "blocks.0.mlp.gate.bias, which does not belong"),
        ("timm-dinov3", "/model_args/num_reg_tokens", json!(3), "number of registers 3 belongs"),
    ];
    for (name, pointer, value, says) in cases {
        let folder = configured(&place, name, |config| {
            let (table, key) = pointer.rsplit_once('/').unwrap();
            config.pointer_mut(table).unwrap()[key] = value.clone();
        });
        let line = refusal(&folder, &fixed(name));
        assert!(line.contains(says) && !line.contains('\n'), "{name}: {pointer} = {value}: {line:?}");
    }
}

/// A key that may change the features is not ignored because bella has never heard of it.
#[test]
fn unknown_keys_of_vision_configs_are_refused_by_name() {
    let place = Place::new();
    for (name, table) in [
        ("hf-vit", ""),
        ("hf-dinov3", ""),
        ("hf-clip-both", ""),
        ("hf-clip-both", "/vision_config"),
        ("hf-clip-both", "/text_config"),
        ("hf-siglip-both", "/text_config"),
        ("timm-vit", ""),
        ("timm-vit", "/model_args"),
        ("timm-vit", "/pretrained_cfg"),
        ("open-clip", "/model_cfg"),
        ("open-clip", "/model_cfg/vision_cfg"),
        ("open-clip", "/model_cfg/text_cfg"),
        ("open-clip-timm", "/model_cfg/vision_cfg"),
    ] {
        let with = |value: Value| {
            let folder =
                configured(&place, name, |config| config.pointer_mut(table).unwrap()["token_mixing"] = value.clone());
            refusal(&folder, &fixed(name))
        };
        assert_has(&with(json!("fourier")), &["token_mixing = \"fourier\""]);
        // What is switched off changes nothing.
        for value in [json!(null), json!(false)] {
            assert_eq!(with(value), "", "{name}{table}");
        }
    }
    for (name, table, key, value) in [
        ("timm-vit", "/model_args", "qk_norm", json!(true)),
        ("timm-vit", "/model_args", "pool_include_prefix", json!(true)),
        ("timm-vit", "/model_args", "pos_embed", json!("none")),
        ("timm-dinov3", "/model_args", "rope_grid_offset", json!(0.5)),
        // The architecture switches it on.
        ("timm-dinov3", "/model_args", "rope_rotate_half", json!(false)),
        ("timm-dinov3", "/model_args", "rope_rotate_half", json!(null)),
        ("timm-dinov3", "/model_args", "rope_temperature", json!(null)),
        ("open-clip", "/model_cfg/vision_cfg", "ls_init_value", json!(0.1)),
        ("open-clip", "/model_cfg/vision_cfg", "attentional_pool", json!(true)),
        ("open-clip", "/model_cfg/vision_cfg", "block_type", json!("custom")),
        ("open-clip", "/model_cfg/text_cfg", "embed_cls", json!(true)),
    ] {
        let folder = configured(&place, name, |config| config.pointer_mut(table).unwrap()[key] = value.clone());
        assert_has(&refusal(&folder, &fixed(name)), &[key]);
    }
}

/// What timm's own arguments say counts; what the top of the file says is checked against them.
#[test]
fn poolings_of_timm_are_read_in_its_order() {
    let place = Place::new();
    let with = |name: &str, change: &dyn Fn(&mut Value)| {
        let folder = configured(&place, name, change);
        refusal(&folder, &fixed(name))
    };
    let top = with("timm-vit", &|config| config["global_pool"] = json!("avg"));
    assert_has(&top, &["global_pool = \"avg\"", "timm builds this network with \"token\""]);
    let none = with("timm-vit", &|config| config["model_args"]["global_pool"] = json!(""));
    assert_has(&none, &["global_pool = \"\" is none that bella computes; known: token, avg, map"]);
    let map = with("timm-vit", &|config| config["model_args"]["global_pool"] = json!("map"));
    assert_has(&map, &["global_pool = \"map\" with tokens in front of the patches"]);
    // Where neither the arguments nor the architecture have one, `pretrained_cfg` counts before the class.
    let below = with("timm-vit", &|config| {
        config["pretrained_cfg"]["global_pool"] = json!("avg");
        config["global_pool"] = json!("avg");
    });
    assert_has(&below, &["calls ln_mean.weight, which belongs"]);
    let above = with("timm-mean", &|config| config["pretrained_cfg"]["global_pool"] = json!("token"));
    assert_eq!(above, "");
}

#[test]
fn refusals_name_what_would_be_read() {
    let place = Place::new();
    let with = |name: &str, change: &dyn Fn(&mut Value)| refusal(&configured(&place, name, change), &fixed(name));
    let language = json!({ "model_type": "gemma9", "vocab_size": 256_000, "hidden_size": 2304 });
    let line = with("hf-vit", &|config| *config = language.clone());
    assert_has(
        &line,
        &[
            "model_type = \"gemma9\" is no network of texts that bella reads; known: llama, mistral, qwen2, qwen3, gemma, gemma2",
            "bert, roberta, xlm-roberta, camembert, distilbert, electra, albert, mpnet, deberta-v2, modernbert",
            "scripts/export_text_encoder.py exports other text encoders",
        ],
    );
    for mixture in ["mixtral", "qwen3_moe", "gpt_oss"] {
        let line = with("hf-vit", &|config| *config = json!({ "model_type": mixture, "vocab_size": 256_000 }));
        assert_has(
            &line,
            &[&format!("model_type = \"{mixture}\" is a mixture of experts"), "bella computes dense networks"],
        );
    }
    let line = with("timm-vit", &|config| config["architecture"] = json!("resnet50"));
    assert_has(&line, &["`resnet50` is an architecture of timm", "set checkpoint.kind = \"module\""]);
    assert!(!line.contains("vit_"), "{line}");
    let line = with("timm-vit", &|config| config["model_type"] = json!("timm_wrapper"));
    assert_has(&line, &["timm_wrapper", "timm.models.save_for_hf(model.timm_model, FOLDER)"]);
    for model_type in ["siglip2", "siglip2_vision_model"] {
        let line = with("hf-siglip", &|config| config["model_type"] = json!(model_type));
        assert_has(&line, &["(NaFlex), whose patches and positions bella does not compute", "model_type is siglip"]);
    }
}
