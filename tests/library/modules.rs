//! `[checkpoint] kind = "module"`: a TorchScript module trains by its own forward. The reference is PyTorch's
//! (tests/fixtures/module, written by scripts/make_module_fixture.py).

use std::path::Path;

use crate::common::{
    Place, alike, assert_has, bella as command, done, error_line, fixture, messages, number, repository, text, with,
};
use bella::data::fields::{Fields, PIXELS};
use bella::experiment::Experiment;
use bella::methods::{RowsAre, Update};
use bella::model::archive::Archive;
use bella::model::network::low_rank::LowRank;
use bella::model::network::{Graph, SlotKind, Weights};
use bella::model::{Backbone, CheckpointKind, Loaded};
use bella::schema::Tree;
use tch::{Device, Kind, Reduction, Tensor};

const MODULE: [&str; 3] = ["checkpoint.kind=module", "checkpoint.image_size=8", "checkpoint.path="];

/// The settings that put a module of the fixtures in place of the checkpoint of the tiny experiment.
fn sets(name: &str) -> Vec<String> {
    let path = fixture("module").join(name);
    vec![MODULE[0].into(), MODULE[1].into(), format!("{}{}", MODULE[2], path.display())]
}

fn joined<'a>(first: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    first.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

fn reference(name: &str) -> Tensor {
    let tensors = Tensor::read_safetensors(fixture("module").join("reference.safetensors")).unwrap();
    tensors.into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// The fixture's network with its own classifier.
fn loaded() -> Loaded {
    let toml = format!(
        "name = \"x\"\nseed = 1\n[checkpoint]\npath = {:?}\nkind = \"module\"\nimage_size = 8\nnormalize = \"imagenet\"\n\
         [head.checkpoint]\n[data.digits]\n",
        fixture("module").join("residual.pt")
    );
    let experiment = Experiment::read(&Tree::parse("x.toml", &toml).unwrap()).unwrap_or_else(|p| panic!("{p}"));
    assert_eq!(experiment.checkpoint.kind, CheckpointKind::Module);
    let classes: Vec<String> = (0..10).map(|class| class.to_string()).collect();
    Loaded::open(&experiment.checkpoint, &*experiment.head.spec, &classes, Device::Cpu).unwrap()
}

/// Weights of two particles that need gradients: those of the reference under the names of `base`, head included.
fn particles(tower: &dyn Backbone) -> Vec<(String, Tensor)> {
    let base = tower.base().all().iter().map(|(name, _)| (name.clone(), name.clone()));
    let head = ["weight", "bias"].map(|part| (format!("head.{part}"), format!("linear.{part}")));
    let leaf = |(name, stored): (String, String)| {
        let both = [0, 1].map(|particle| reference(&format!("{particle}.{stored}")));
        (name, Tensor::stack(&both, 0).set_requires_grad(true))
    };
    base.chain(head).map(leaf).collect()
}

fn weights<'a>(tower: &'a dyn Backbone, own: &[(String, Tensor)]) -> Weights<'a> {
    let mut weights = Weights::frozen(tower.base());
    own.iter().for_each(|(name, tensor)| weights.replace(name, tensor.shallow_clone()));
    weights
}

/// One pass with both particles: logits and gradients are those of PyTorch for either, so no particle sees the other's.
#[test]
fn logits_and_gradients_are_those_of_pytorch() {
    let loaded = loaded();
    let own = particles(&*loaded.tower);
    let weights = weights(&*loaded.tower, &own);
    let features = loaded.tower.network().forward(&weights, &Fields::of(PIXELS, reference("pixels").unsqueeze(0)));
    assert_eq!(features.size(), [2, 4, 7]);
    let logits = loaded.head.logits(&weights, &features);
    let labels = reference("labels");
    let loss =
        |particle: i64| logits.get(particle).cross_entropy_loss::<Tensor>(&labels, None, Reduction::Mean, -100, 0.0);
    let leaves: Vec<&Tensor> = own.iter().map(|(_, leaf)| leaf).collect();
    let gradients = Tensor::f_run_backward(&[loss(0) + loss(1)], &leaves, false, false).unwrap();
    for particle in 0..2i64 {
        alike(&logits.get(particle), &reference(&format!("{particle}.logits")), "logits");
        for ((name, _), gradient) in own.iter().zip(&gradients) {
            let stored = name.replace("head.", "linear.");
            let expected = reference(&format!("{particle}.{stored}.gradient"));
            alike(&gradient.get(particle), &expected, &format!("{particle}: {name}"));
        }
    }
}

/// With W = W_0 + s B A and G = ∂L/∂W, the gradients are s Bᵀ G for A and s G Aᵀ for B.
#[test]
fn low_rank_gradients_are_those_of_the_formed_weights() {
    let loaded = loaded();
    let (tower, scale) = (&*loaded.tower, 0.7);
    tch::manual_seed(4);
    let pixels = Fields::of(PIXELS, reference("pixels").unsqueeze(0));
    let slots = tower.network().slots();
    let slots: Vec<_> = slots.into_iter().filter(|slot| slot.kind != SlotKind::Other).collect();
    let names: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
    assert_eq!(names, ["shortcut", "hidden"]);
    let random = |size: [i64; 3]| Tensor::randn(size, tch::kind::FLOAT_CPU).set_requires_grad(true);
    let factors: Vec<[Tensor; 2]> =
        slots.iter().map(|slot| [random([2, 3, slot.inputs]), random([2, slot.outputs, 3])]).collect();
    let (mut low, mut whole) = (Weights::frozen(tower.base()), Weights::frozen(tower.base()));
    let mut formed = Vec::new();
    for (slot, [a, b]) in slots.iter().zip(&factors) {
        low.update(&slot.name, LowRank { a: a.shallow_clone(), b: b.shallow_clone(), scale, magnitude: None });
        let name = format!("{}.weight", slot.name);
        let base = tower.base().get(&name).unwrap();
        let weight = base.unsqueeze(0) + (b.matmul(a) * scale).reshape([&[2], base.size().as_slice()].concat());
        formed.push(weight.detach().set_requires_grad(true));
        whole.replace(&name, formed.last().unwrap().shallow_clone());
    }
    let loss = |weights: &Weights| tower.network().forward(weights, &pixels).square().sum(Kind::Float);
    let leaves: Vec<&Tensor> = factors.iter().flatten().collect();
    let found = Tensor::f_run_backward(&[loss(&low)], &leaves, false, false).unwrap();
    let by_weight = Tensor::f_run_backward(&[loss(&whole)], &formed, false, false).unwrap();
    for ((index, [a, b]), gradient) in factors.iter().enumerate().zip(by_weight) {
        let gradient = gradient.flatten(2, -1).view([2, b.size()[1], a.size()[2]]);
        alike(&found[2 * index], &(b.transpose(1, 2).matmul(&gradient) * scale), "A");
        alike(&found[2 * index + 1], &(gradient.matmul(&a.transpose(1, 2)) * scale), "B");
    }
}

/// Values that a graph still needs are never replaced unnoticed: libtorch refuses the backward pass.
#[test]
fn a_graph_whose_weights_were_replaced_is_refused() {
    let loaded = loaded();
    let (tower, own) = (&*loaded.tower, particles(&*loaded.tower));
    let own = &own[..own.len() - 2];
    let pixels = Fields::of(PIXELS, reference("pixels").unsqueeze(0));
    let leaves: Vec<&Tensor> = own.iter().map(|(_, leaf)| leaf).collect();
    for other in [weights(tower, own), Weights::frozen(tower.base())] {
        let early = tower.network().forward(&weights(tower, own), &pixels).sum(Kind::Float);
        let _late = tower.network().forward(&other, &pixels);
        let error = Tensor::f_run_backward(&[early], &leaves, false, false).unwrap_err().to_string();
        assert!(error.contains("modified by an inplace operation") || error.contains("detached in-place"), "{error}");
    }
    // The next pass starts anew.
    let again = tower.network().forward(&weights(tower, own), &pixels).sum(Kind::Float);
    Tensor::f_run_backward(&[again], &leaves, false, false).unwrap();
}

/// Without weights of its own, and with each particle's own images.
#[test]
fn frozen_weights_and_own_samples() {
    let loaded = loaded();
    let (network, base) = (loaded.tower.network(), loaded.tower.base());
    let all = Fields::of(PIXELS, reference("pixels").unsqueeze(0));
    let halves = Fields::of(PIXELS, reference("pixels")).of_particles(2);
    let whole = tch::no_grad(|| network.forward(&Weights::frozen(base), &all));
    let pairs = tch::no_grad(|| network.forward(&Weights::frozen(base), &halves));
    alike(&pairs.view([1, 4, 7]), &whole, "two images each");
    alike(&loaded.head.logits(&Weights::frozen(base), &whole).squeeze_dim(0), &reference("0.logits"), "logits");
    let own = particles(&*loaded.tower);
    let trained = weights(&*loaded.tower, &own);
    let own_images = tch::no_grad(|| network.forward(&trained, &halves));
    let all = tch::no_grad(|| network.forward(&trained, &all));
    alike(&own_images.get(1), &all.get(1).narrow(0, 2, 2), "the second particle's images");
}

/// A graph of the fixture keeps at least the outputs of its convolutions and norms; a pass without one is planned with as
/// much for each image of a member, of which threads take several at once.
#[test]
fn memory_is_measured() {
    let loaded = loaded();
    let (network, base) = (loaded.tower.network(), loaded.tower.base());
    let bytes = 4 * (2 * 6 * 64 + 3 * 8 * 16);
    let need = network.need(base, Graph::Samples { budgets: 1 }, Kind::Float);
    assert!(need.pair > bytes && need.pair < 100 * bytes, "{need:?}");
    let without = network.need(base, Graph::None, Kind::Float);
    assert!(without.pair == need.pair && without.image < need.image, "{without:?}");
}

/// The columns of the results that are no counts or times.
const NUMBERS: [&str; 4] = ["accuracy_pm", "nll_pm", "ece_pm", "mi"];

/// The project's ViT by the native forward and by its own: the same training, evaluation and attack.
fn trains_as_natively(how: &[&str]) {
    let run = |module: bool| {
        let place = Place::with_tiny();
        let mut sets = how.to_vec();
        let targets = if module { "[\"linear\"]" } else { "[\"attn.qkv\",\"attn.proj\",\"mlp.fc\",\"mlp.proj\"]" };
        let targets = format!("subspace.low-rank.targets={targets}");
        if how[0].contains("low-rank") {
            sets.push(&targets);
        } else {
            let plain = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
            place.write("tiny.toml", plain.replace("[subspace.low-rank]\nrank = 2\n", "").as_bytes());
        }
        if module {
            sets.extend(&MODULE[..2]);
        }
        done(place.train(&sets));
        let attack = with(place.command("eval", &[]), &["--attack", "fgsm", "--epsilon", "0.05"]);
        done(attack);
        let table = place.results();
        let rows = 0..table.rows.len();
        rows.flat_map(|row| NUMBERS.map(|column| number(&table, row, column))).collect::<Vec<f64>>()
    };
    let (native, module) = (run(false), run(true));
    assert!(native.len() > NUMBERS.len() && native.len() == module.len(), "{native:?} {module:?}");
    for (native, module) in native.iter().zip(&module) {
        assert!((native - module).abs() < 1e-4, "{how:?}: {native} natively, {module} as a module");
    }
}

#[test]
fn all_weights_of_a_vision_transformer_train_as_natively() {
    trains_as_natively(&["subspace.full={}", "method.svgd.gamma=0.01"]);
}

#[test]
fn low_rank_updates_of_a_vision_transformer_train_as_natively() {
    trains_as_natively(&["subspace.low-rank.rank=2", "method.svgd.gamma=0.01"]);
}

#[test]
fn heads_of_a_vision_transformer_train_as_natively() {
    trains_as_natively(&["subspace.last-layer={}", "method.svgd.gamma=0.01"]);
}

/// Every method with settings of a few steps; the subspace is low-rank where nothing else is said. `imported` trains nothing.
const METHODS: &[(&str, &str)] = &[
    ("map", "{}"),
    ("ensemble", "{particles=2}"),
    ("sam", "{}"),
    ("svgd", "{particles=2,gamma=0.01}"),
    ("ivon", "{lr=0.01,ess=32}"),
    ("vogn", "{lr=1e-3,ess=32}"),
    ("bbb", "{lr=1e-3,ess=32}"),
    ("laplace", "{samples=4,parameters=\"last-layer\"}"),
    ("swag", "{start=0,every=1,columns=2,samples=4}"),
    ("mc-dropout", "{samples=4}"),
    ("sgld", "{lr=1e-4,ess=32,start=0,every=1}"),
    ("psgld", "{lr=1e-4,ess=32,start=0,every=1}"),
    ("sghmc", "{lr=1e-4,ess=32,start=0,every=1}"),
    ("mclmc", "{ess=32,step_size=1e-3,length=1,tune_steps=0,start=0,every=1}"),
    ("ibdr", "{particles=2,std=0.01}"),
    ("tfb", "{}"),
    ("bayestune", "{lr=1e-3,ess=32,search_steps=2,burn_in=1}"),
    ("blob", "{cycle=4,flipout=false}"),
    ("scalabl", "{cycle=4,samples=4}"),
    ("vbll", "{ess=32}"),
    ("vbll", "{ess=32,covariance=\"dense\"}"),
];

#[test]
fn every_method_is_tried() {
    let tried: Vec<&str> = METHODS.iter().map(|(key, _)| *key).collect();
    for entry in bella::methods::METHODS.iter().filter(|entry| !["imported", "bayesvlm"].contains(&entry.key)) {
        assert!(tried.contains(&entry.key), "{} is not tried on a module", entry.key);
    }
}

#[test]
fn a_gaussian_over_projections_refuses_it() {
    let place = Place::with_tiny();
    let plain = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    let (plain, _) = plain.split_once("[subspace").unwrap();
    let more = "[subspace.projections]\n[method.bayesvlm]\n[optimizer.none]\n[train]\nepochs = 1\nbatch_size = 8\n";
    place.write("tiny.toml", format!("{plain}{more}").as_bytes());
    let line = error_line(place.train(&joined(&sets("residual.pt"), &[])), 1);
    assert_has(&line, &["subspace.projections", "needs a zero-shot head: use [head.zero-shot]"]);
}

/// Runs by the methods with such rows have a finite loss, and their members differ where there are several.
fn trains(rows: RowsAre) {
    for (key, settings) in METHODS {
        let entry = bella::methods::METHODS.iter().find(|entry| entry.key == *key).unwrap();
        if entry.rows != rows {
            continue;
        }
        let place = Place::with_tiny();
        let plain = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
        let plain = plain.replace("[method.svgd]\nparticles = 2\ngamma = 0.01\n", "");
        place.write("tiny.toml", plain.as_bytes());
        let method = format!("method.{key}={settings}");
        let head = if ["laplace", "vbll"].contains(key) { "head={linear={}}" } else { "train.epochs=1" };
        let optimizer = match entry.update {
            Update::Own | Update::OwnAfter(_) => "optimizer={none={}}",
            Update::Optimizer => "optimizer={adamw={lr=2e-3}}",
        };
        let more = [&method, head, optimizer, "subspace.low-rank.targets=[\"linear\",\"pointwise\"]", "train.epochs=1"];
        done(place.train(&joined(&sets("residual.pt"), &more)));
        let table = place.results();
        assert!(number(&table, 0, "nll_pm").is_finite(), "{key}");
        let members = number(&table, 0, "members");
        assert!(members == 1.0 || number(&table, 0, "mi") > 0.0, "{key}: {members} equal members");
        assert_eq!(members == 1.0, ["map", "sam", "bayestune"].contains(key), "{key}: {members} members");
    }
}

#[test]
fn methods_of_points_train_it() {
    trains(RowsAre::Points);
}

#[test]
fn methods_of_gaussians_train_it() {
    trains(RowsAre::Gaussians);
}

#[test]
fn methods_of_samples_train_it() {
    trains(RowsAre::Samples);
}

/// Normalisation with running statistics stays as it is stored, which is said; all weights train.
#[test]
fn all_weights_train_in_evaluation_mode() {
    let place = Place::with_tiny();
    let plain = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    place.write("tiny.toml", plain.replace("[subspace.low-rank]\nrank = 2\n", "[subspace.full]\n").as_bytes());
    let output = place.train(&joined(&sets("residual.pt"), &[])).output().unwrap();
    assert_has(&messages(&output), &["normalisation with running statistics stays in evaluation mode"]);
    assert!(number(&place.results(), 0, "mi") > 0.0);
}

#[test]
fn what_cannot_be_done_is_refused_in_one_line() {
    let place = Place::with_tiny();
    let refused = |name: &str, more: &[&str]| error_line(place.train(&joined(&sets(name), more)), 1);
    let low = ["subspace.low-rank.targets=[\"linear\",\"pointwise\"]"];
    assert_has(&refused("training.pt", &low), &["training.pt: the output for an image changes", "model.eval()"]);
    assert_has(&refused("half.pt", &low), &["half.pt: `stem.weight` is stored as Half", "model.float()"]);
    assert_has(&refused("knows_its_batch.pt", &low), &["its forward knows its batch size"]);
    let views = [
        ("view_of_a_parameter.pt", "`square.weight` shares memory with `decode`"),
        ("view_in_a_buffer.pt", "with `row`"),
        ("view_in_a_list.pt", "`square.weight` shares memory with `a tensor of a list`"),
    ];
    for (name, other) in views {
        assert_has(&refused(name, &low), &[name, "shares memory with", other, ".data.clone()"]);
        // An archive that is written again would change both, too.
        let archive = Archive::open(&fixture("module").join(name)).unwrap();
        let written = archive.save_changed(&place.path("again.pt"), &|_, _| None).unwrap_err();
        assert_has(&format!("{written:#}"), &[name, "shares memory with"]);
    }
    assert_has(&refused("logarithm.pt", &low), &["logarithm.pt: its output for random images is NaN or infinite"]);
    assert_has(&refused("residual.pt", &[]), &["no linear layer `mlp.fc`: it has linear, pointwise"]);
    let dora = [low[0], "subspace.low-rank.dora=true", "subspace.low-rank.rank=1"];
    assert_has(&refused("residual.pt", &dora), &["subspace.low-rank.dora", "is a convolution"]);
    let laplace = [low[0], "method={laplace={parameters=\"all\"}}"];
    assert_has(&refused("residual.pt", &laplace), &["method.laplace.parameters = \"all\"", "[head.linear]"]);
    let weight = [low[0], "method.svgd.drive=weight", "subspace.low-rank.rank=1"];
    assert_has(&refused("residual.pt", &weight), &["drive = \"own\" or \"shared\""]);
    assert_has(&refused("residual.pt", &[low[0], "train.precision=f64"]), &["computes in f32 only"]);
    let module = "checkpoint.kind=module";
    assert_has(&error_line(place.train(&[module]), 2), &["checkpoint.image_size", "a module does not tell it"]);
    let error = error_line(place.train(&[module, "checkpoint.image_size=8", "checkpoint.heads=2"]), 2);
    assert_has(&error, &["checkpoint.heads = 2: means nothing with kind = \"module\""]);
    let path = format!("checkpoint.path={}", text(&fixture("module").join("residual.pt")));
    assert_has(&error_line(place.train(&[path.as_str()]), 1), &["checkpoint.kind = \"module\""]);
}

/// Neither the training nor the mode of the module is made to blame for numbers of the file.
#[test]
fn weights_that_are_not_finite_are_named() {
    let place = Place::with_tiny();
    let refused = |from: &Path, parameter: &str, sets: &[&str]| {
        let changed = place.path("changed.pt");
        let archive = Archive::open(from).unwrap();
        let one = |tensor: &Tensor| {
            let odd = tensor.copy();
            let _ = odd.flatten(0, -1).narrow(0, 0, 1).fill_(f64::NAN);
            odd
        };
        archive.save_changed(&changed, &|name, tensor| (name == parameter).then(|| one(tensor))).unwrap();
        let path = format!("checkpoint.path={}", changed.display());
        error_line(place.train(&joined(&[path], sets)), 1)
    };
    let residual = fixture("module").join("residual.pt");
    let line = refused(&residual, "hidden.weight", &MODULE[..2]);
    assert_has(&line, &["changed.pt: `hidden.weight` has a number that is NaN or infinite", "give other weights"]);
    let vit = repository("assets/vit-digits.pt");
    let line = refused(&vit, "blocks.1.mlp.fc1.weight", &[]);
    assert_has(&line, &["changed.pt: ", "blocks.1.mlp.fc", "has a number that is NaN or infinite"]);
    let line = refused(&vit, "head.weight", &[]);
    assert_has(&line, &["changed.pt: its classifier has a number that is NaN or infinite"]);
}

#[test]
fn inspect_tells_what_a_module_is() {
    let path = text(&fixture("module").join("residual.pt"));
    let printed = done(command(&["inspect", &path, "--module", "--image-size", "8"]));
    assert_has(&printed, &["10 classes", "features      7", "1 linear", "1 pointwise", "evaluation mode"]);
    let vit = text(&repository("assets/vit-digits.pt"));
    assert_has(&done(command(&["inspect", &vit, "--module", "--image-size", "8"])), &["10 classes"]);
}

/// A module learns from mixed images, and its particles are averaged over the steps; the inputs of its layers are not known.
#[test]
fn recipes_train_a_module() {
    let place = Place::with_tiny();
    let (own, low) = (sets("residual.pt"), "subspace.low-rank.targets=[\"linear\",\"pointwise\"]");
    let head = "head={linear={}}";
    let recipe =
        ["train.mixup.alpha=0.8", "train.mixup.cutmix_alpha=1.0", "train.ema.decay=0.9", "train.label_smoothing=0.1"];
    done(with(place.train(&joined(&own, &[&[low, head][..], &recipe].concat())), &["--no-eval"]));
    let line = error_line(place.train(&joined(&own, &[low, head, "subspace.low-rank.init=eva"])), 1);
    assert_has(&line, &["subspace.low-rank.init = \"eva\"", "a module", "shows the inputs of each"]);
}
