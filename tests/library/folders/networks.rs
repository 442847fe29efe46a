//! Features, gradients and particles of every family.

use super::*;

fn identified(name: &str) -> Identified {
    tch::set_num_threads(1);
    folder::identify(&family(name), &fixed(name)).unwrap_or_else(|e| panic!("{name}: {e:#}"))
}

fn features(vit: &Vit, base: &Parameters, pixels: &Tensor) -> Tensor {
    tch::no_grad(|| vit.forward(&Weights::frozen(base), &Fields::of(PIXELS, pixels.unsqueeze(0)))).squeeze_dim(0)
}

#[test]
fn every_family_gives_the_features_and_logits_of_its_package() {
    for name in &families() {
        let Identified { mut vit, mut base, head, evidence, .. } = identified(name);
        let Evidence::Config { reference: Some(difference) } = evidence else { panic!("{name}: {evidence:?}") };
        assert!(difference.relative < 1e-5, "{name}: {difference:?}");
        let pixels = reference(name, "pixels").unwrap();
        let native = features(&vit, &base, &pixels);
        alike(&native, &reference(name, "features").unwrap(), name);
        stages_have_their_shapes(&vit, &base, &pixels, &native, name);
        if let Some(logits) = reference(name, "logits") {
            let head = head.unwrap_or_else(|| panic!("{name}: no head"));
            alike(&native.linear(&head.weight, Some(&head.bias)), &logits, &format!("{name}: logits"));
        }
        if let Some(pixels) = reference(name, "resized_pixels") {
            vit.resize(&mut base, pixels.size()[2]).unwrap();
            let resized = features(&vit, &base, &pixels);
            alike(&resized, &reference(name, "resized_features").unwrap(), &format!("{name}: another size"));
        }
    }
}

/// What enters each stage has the shape that plans and caches take it to have, and gives the features.
fn stages_have_their_shapes(vit: &Vit, base: &Parameters, pixels: &Tensor, features: &Tensor, name: &str) {
    let weights = Weights::frozen(base);
    for stage in 0..=vit.stages() {
        let entering = tch::no_grad(|| vit.enter_at(&weights, stage, &Fields::of(PIXELS, pixels.unsqueeze(0))));
        assert_eq!(entering.first().size()[2..], vit.entering(stage).first()[..], "{name}: stage {stage}");
        let again = tch::no_grad(|| vit.features_from(&weights, stage, entering)).squeeze_dim(0);
        alike(&again, features, &format!("{name}: from stage {stage}"));
    }
}

/// A convolution by patches leaves out the pixels that no whole patch covers, as in SigLIP, which has 27 patches of 14 in 384 pixels:
/// images of 18 pixels have the features of their first 16, in transformers, timm and open_clip, too.
#[test]
fn pixels_that_no_patch_covers_are_left_out() {
    let place = Place::new();
    for (name, file, side) in [
        ("hf-siglip", "config.json", "\"image_size\": "),
        ("timm-siglip", "config.json", "\"img_size\": "),
        ("open-clip-siglip", "open_clip_config.json", "\"image_size\": "),
    ] {
        let folder = changed(&place, name, |at| {
            text(at, file, &format!("{side}16"), &format!("{side}18"));
            std::fs::remove_file(at.join("reference.safetensors")).unwrap();
        });
        let Identified { mut vit, mut base, .. } = folder::identify(&folder, &fixed(name)).unwrap();
        assert_eq!((vit.geometry.image_size(), vit.geometry.grid), (18, 4), "{name}");
        let (covered, expected) = (reference(name, "pixels").unwrap(), reference(name, "features").unwrap());
        let pixels = Tensor::ones([covered.size()[0], 3, 18, 18], tch::kind::FLOAT_CPU);
        pixels.narrow(2, 0, 16).narrow(3, 0, 16).copy_(&covered);
        alike(&features(&vit, &base, &pixels), &expected, name);
        vit.resize(&mut base, 16).unwrap();
        alike(&features(&vit, &base, &covered), &expected, &format!("{name}: without the margin"));
        // So are those of the size at which a folder's processor prepares images.
        vit.fit(&mut base, 18).unwrap();
        alike(&features(&vit, &base, &pixels), &expected, &format!("{name}: with it again"));
        assert!(vit.fit(&mut base, 3).is_err(), "{name}: no whole patch");
    }
}

/// The package's gradients of a weighted sum of the features by low-rank updates of two layers.
#[test]
fn gradients_are_those_of_the_package() {
    for name in ["hf-beit", "timm-beit", "timm-eva02"] {
        let Identified { vit, base, .. } = identified(name);
        let tensors = Tensor::read_safetensors(family(name).join("reference.safetensors")).unwrap();
        let of = |wanted: &str| tensors.iter().find(|(known, _)| known == wanted).unwrap().1.shallow_clone();
        let layers: Vec<&str> = tensors.iter().filter_map(|(name, _)| name.strip_suffix(".A.gradient")).collect();
        assert_eq!(layers.len(), 2, "{name}");
        let mut weights = Weights::frozen(&base);
        let mut leaves = Vec::new();
        for layer in &layers {
            let [a, b] = ["A", "B"].map(|part| of(&format!("{layer}.{part}")).unsqueeze(0).set_requires_grad(true));
            leaves.extend([(format!("{layer}.A"), a.shallow_clone()), (format!("{layer}.B"), b.shallow_clone())]);
            weights.update(layer, LowRank { a, b, scale: 0.5, magnitude: None });
        }
        let features = vit.forward(&weights, &Fields::of(PIXELS, of("pixels").unsqueeze(0))).squeeze_dim(0);
        (features * of("coefficients")).sum(Kind::Float).backward();
        for (leaf, tensor) in leaves {
            alike(&tensor.grad().squeeze_dim(0), &of(&format!("{leaf}.gradient")), &format!("{name}: {leaf}"));
        }
    }
}

/// Two particles of every family, in every subspace: each has the features that it has alone, and a gradient by all that is
/// trained.
#[test]
fn particles_of_every_family_train_in_low_rank_and_full() {
    let low_rank = "low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }";
    for name in &families() {
        for subspace in [low_rank, "full = {}"] {
            let heads = fixed(name).heads.map_or(String::new(), |heads| format!("checkpoint.heads = {heads}\n"));
            let more = format!("{heads}subspace.{subspace}\nmethod.svgd = {{ particles = 2, gamma = 0.01 }}");
            let text = experiment(name, &more) + "checkpoint.normalize = \"imagenet\"\n";
            let (model, subspace) = common::model(&text, Kind::Float);
            tch::manual_seed(1);
            let start = subspace.initial(1, 0).unwrap();
            let theta = start.unsqueeze(0) + Tensor::randn([2, start.size()[0]], tch::kind::FLOAT_CPU) * 0.02;
            let leaves = subspace.layout().leaves(&theta, Kind::Float, true);
            let pixels = Fields::of(PIXELS, reference(name, "pixels").unwrap().unsqueeze(0));
            let logits = |leaves: &[Tensor]| model.logits(&subspace.weights(&model.base, leaves), &pixels);
            let both = logits(&leaves);
            for particle in 0..2 {
                let own: Vec<Tensor> = leaves.iter().map(|leaf| leaf.detach().narrow(0, particle, 1)).collect();
                let what = format!("{name}: particle {particle} alone");
                alike(&both.detach().narrow(0, particle, 1), &tch::no_grad(|| logits(&own)), &what);
            }
            both.square().sum(Kind::Float).backward();
            for (leaf, column) in leaves.iter().zip(&subspace.layout().columns) {
                let largest = leaf.grad().abs().max().double_value(&[]);
                assert!(largest.is_finite() && largest > 0.0, "{name}: {}: {largest}", column.name);
            }
        }
    }
}

/// Zero-shot heads are made of these.
#[test]
fn text_towers_give_the_features_of_their_package() {
    let families =
        ["hf-clip-both", "open-clip", "open-clip-eva02", "open-clip-siglip", "open-clip-timm", "open-clip-timm-root"];
    for name in families.into_iter().chain(["hf-siglip-both", "hf-siglip2-both"]) {
        let text = folder::identify_text(&family(name), &fixed(name)).unwrap();
        let text = text.unwrap_or_else(|| panic!("{name}: no text tower"));
        let tokens = reference(name, "tokens").unwrap();
        let found = tch::no_grad(|| text.tower.features(&text.weights.parameters, &tokens));
        alike(&found, &reference(name, "text_features").unwrap(), name);
    }
    for name in ["hf-vit", "hf-siglip", "timm-vit"] {
        assert!(folder::identify_text(&family(name), &fixed(name)).unwrap().is_none(), "{name}");
    }
    let place = Place::new();
    let without = |at: &Path| text(at, "open_clip_config.json", "\"heads\": 3", "\"heads\": 5");
    let error = folder::identify_text(&changed(&place, "open-clip", without), &Fixed::default());
    let error = error.err().unwrap().to_string();
    assert!(error.ends_with("text tower: 5 heads do not divide its width"), "{error}");
}

const LOW_RANK: &str =
    "subspace.low-rank = { rank = 2, targets = [\"attn.qkv\", \"attn.proj\", \"mlp.fc\", \"mlp.proj\"] }";

#[test]
fn particles_of_folders_train_and_are_attacked_in_low_rank() {
    trained_and_attacked(&[
        ("hf-dinov2-registers", LOW_RANK),
        ("hf-dinov3-gated", "subspace.low-rank = { rank = 2, targets = [\"mlp.gate\", \"mlp.proj\"] }"),
        ("timm-eva02", LOW_RANK),
    ]);
}

#[test]
fn particles_of_folders_train_and_are_attacked_in_full() {
    trained_and_attacked(&[
        ("hf-dinov3", "subspace.full = {}"),
        ("hf-siglip", "subspace.full = {}"),
        ("hf-beit", "subspace.full = {}"),
    ]);
}

fn trained_and_attacked(runs: &[(&str, &str)]) {
    for (name, subspace) in runs {
        let place = Place::new();
        let more = format!("{subspace}\nmethod.svgd = {{ particles = 2, gamma = 0.01 }}");
        done(train(&place, &config(&place, name, &more), &["checkpoint.normalize=imagenet"]));
        let mut attack = place.command("eval", &[]);
        attack.args(["--attack", "fgsm", "--epsilon", "0.01"]);
        done(attack);
    }
}
