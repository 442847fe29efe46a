//! Jacobians and forward derivatives of networks against autograd.

use super::*;

#[test]
fn jacobians_of_a_vision_transformer_equal_those_of_autograd() {
    for setting in Setting::all() {
        let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
        let ours: Vec<Tensor> = setting.pass(&maps, &images).jacobians(|_| true).unwrap();
        let ours = Tensor::cat(&ours.iter().map(|j| j.flatten(2, 3)).collect::<Vec<_>>(), 2);
        near(&ours, &setting.dense(&images).1, 1e-10, "Jacobians");
    }
}

/// Each label word is a use of its own of the output matrix.
#[test]
fn jacobians_of_a_language_network_equal_those_of_autograd() {
    let setting = Setting::language();
    let samples = prompts();
    let maps = Maps::all(&*setting.subspace).unwrap();
    let ours: Vec<Tensor> = setting.pass(&maps, &samples).jacobians(|_| true).unwrap();
    let ours = Tensor::cat(&ours.iter().map(|j| j.flatten(2, 3)).collect::<Vec<_>>(), 2);
    near(&ours, &setting.dense(&samples).1, 1e-10, "Jacobians");
}

/// Compares J δ by forward derivatives with the product of δ and the Jacobians of all classes.
#[track_caller]
fn derivatives_agree(setting: &Setting, parameters: Parameters, samples: &Fields, bound: f64) {
    tch::manual_seed(4);
    let maps = parameters.maps(&*setting.subspace).unwrap();
    let moves = Tensor::randn([5, maps.parameters()], F64).to_kind(setting.model.kind);
    let Setting { model, subspace, theta } = setting;
    let found = Moves { subspace: &**subspace, maps: &maps, theta, moves: &moves }.logits(model, samples).unwrap();
    let (logits, jacobian) = setting.dense(samples);
    let own = jacobian.narrow(2, maps.columns.start, maps.parameters());
    let expected = own.matmul(&moves.to_kind(Kind::Double).tr()).permute([2, 0, 1]);
    near(&found.moved.unwrap(), &expected, bound, "J δ");
    near(&found.value.squeeze_dim(0), &logits, bound, "logits");
}

#[test]
fn forward_derivatives_of_vision_transformers_equal_the_jacobians_of_all_classes() {
    for setting in Setting::all() {
        derivatives_agree(&setting, Parameters::All, &setting.images(3), 1e-10);
    }
    let linear = Setting::new("openai_visual.pt", "[head.linear]");
    derivatives_agree(&linear, Parameters::LastLayer, &linear.images(3), 1e-10);
}

#[test]
fn forward_derivatives_of_a_language_network_equal_the_jacobians_of_all_classes() {
    derivatives_agree(&Setting::language(), Parameters::All, &prompts(), 1e-10);
}

#[test]
fn forward_derivatives_of_a_residual_network_equal_the_jacobians_of_all_classes() {
    let setting = Setting::module();
    derivatives_agree(&setting, Parameters::LastLayer, &setting.images(3), 1e-5);
}

/// What a layer's last token alone would give, as in the authors' code for language networks (bayesian_lora), lacks what earlier tokens
/// add to the logits through attention: all of the last layers is there, but neither keys, values nor earlier blocks are.
#[test]
fn the_last_token_alone_lacks_what_attention_brings() {
    let setting = Setting::language();
    let ids = [1, 5, 9, 22, 7, 40, 1, 33, 12, 13, 14, 8];
    let mask = Tensor::ones([12], (Kind::Int64, Device::Cpu));
    let samples = [(IDS, Tensor::from_slice(&ids)), (MASK, mask)].map(|(name, row)| (name, row.view([1, 2, 6])));
    let samples = Fields::new(samples.into());
    let maps = Maps::all(&*setting.subspace).unwrap();
    let pass = setting.pass(&maps, &samples);
    let direction = Tensor::zeros([2, 3], F64);
    let _ = direction.select(1, 0).fill_(1.0);
    let gradients = pass.gradients(&direction).unwrap();
    let mut missing = std::collections::BTreeMap::<&str, f64>::new();
    for ((map, site), gradient) in maps.maps.iter().zip(&pass.sites).zip(&gradients) {
        let last = |of: &Tensor| of.narrow(1, of.size()[1] - 1, 1);
        let whole = weight_gradient(&site.input, gradient);
        let alone = weight_gradient(&last(&site.input), &last(gradient));
        let share = ((&whole - alone).norm() / whole.norm()).double_value(&[]);
        let name = setting.subspace.layout().blocks[map.block].name.as_str();
        let most = missing.entry(name).or_default();
        *most = most.max(share);
    }
    for (name, share) in missing.iter().filter(|(name, _)| **name != "lm_head") {
        let is_whole = name.starts_with("blocks.1.") && !name.ends_with("attn.k") && !name.ends_with("attn.v");
        assert!(if is_whole { *share < 1e-12 } else { *share > 1e-2 }, "{name}: {share:.1e} missing");
    }
    assert!(missing.len() > 14, "{missing:?}");
}
