//! IVON on a vision transformer against the public package, and end to end on the embedded digits.

use crate::common::{Place, assert_has, cell, error_line, fixture, messages, model};
use bella::base::random::{At, Noise};
use bella::data::batches::Batch;
use bella::data::fields::{Fields, PIXELS};
use bella::methods::Method;
use bella::methods::ivon::{Estimator, Ivon, Spec};
use bella::train::{Learner, Likelihood, Passes};
use tch::{Device, Kind, Tensor};

/// The public package's names of the fixture's parameters.
fn public(name: &str) -> String {
    match name {
        "class_token" => "cls_token".into(),
        "position" => "pos_embed".into(),
        _ if name.starts_with("patch.") => format!("patch_embed.proj{}", &name[5..]),
        _ if name.starts_with("ln_post") => name.replace("ln_post", "norm"),
        _ => name
            .replace("ln_1", "norm1")
            .replace("ln_2", "norm2")
            .replace("mlp.fc", "mlp.fc1")
            .replace("mlp.proj", "mlp.fc2"),
    }
}

// tests/fixtures/ivon_steps.json is what scripts/compare_ivon.py prints.
#[test]
fn a_hundred_steps_equal_those_of_the_public_package() {
    const STEPS: i64 = 100;
    let text = format!(
        "name = \"x\"\nseed = 1\n[checkpoint]\npath = {:?}\nnormalize = \"clip\"\n[head.checkpoint]\n[data.digits]\n\
         [subspace.full]\n[method.ivon]\nlr = 0.05\ness = 400\nhess_init = 0.5\nbeta2 = 0.99\nweight_decay = 1e-3\n\
         [optimizer.none]\n[train]\nepochs = 1\nbatch_size = 8\nprecision = \"f64\"\n",
        fixture("timm_scripted.pt")
    );
    let (model, subspace) = model(&text, Kind::Double);
    let bytes = (Tensor::arange(8 * 3 * 32 * 32, (Kind::Int64, Device::Cpu)) * 7919).remainder(256);
    let bytes = bytes.to_kind(Kind::Uint8).view([8, 3, 32, 32]);
    let batch = Batch {
        samples: Fields::of(PIXELS, bytes),
        labels: Tensor::arange(8, (Kind::Int64, Device::Cpu)).remainder(10),
    };
    let mut theta = subspace.initial(1, 0).unwrap().to_kind(Kind::Double).unsqueeze(0);

    let counts: Vec<i64> = subspace.layout().columns.iter().map(|column| column.count()).collect();
    let noise = move |at: At, theta: &Tensor| {
        let of = |count: &i64| {
            let j = Tensor::arange(*count, (Kind::Double, Device::Cpu));
            (j * 0.37 + (1.1 * at.step as f64 + 0.5 * (count % 7) as f64)).sin() * 2f64.sqrt()
        };
        Tensor::cat(&counts.iter().map(of).collect::<Vec<_>>(), 0).expand_as(theta)
    };
    let settings = Spec {
        particles: 1,
        lr: vec![0.05],
        ess: 400.0,
        hess_init: 0.5,
        beta1: 0.9,
        beta2: 0.99,
        weight_decay: 1e-3,
        clip_radius: None,
        rescale_lr: true,
        tune_hess_init: false,
        debias: true,
        estimator: Estimator::Price,
        mc_samples: 1,
        samples: 1,
    };
    let mut ivon = Ivon::new(settings, &theta, Noise::from(noise));
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let mut objective = Likelihood::new(Learner::of_classes(&model, &*subspace), Passes::WHOLE, &batch, 1);
        let done = ivon.step(&mut theta, &mut objective, 1.0).unwrap();
        if step % 10 == 0 {
            losses.push(done.losses.double_value(&[0]));
        }
    }

    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture("ivon_steps.json")).unwrap()).unwrap();
    for (ours, theirs) in losses.iter().zip(golden["losses"].as_array().unwrap()) {
        assert!((ours - theirs.as_f64().unwrap()).abs() < 1e-5, "{losses:?}");
    }
    assert!(losses[9] < losses[0] - 0.5, "the model does learn: {losses:?}");
    for column in &subspace.layout().columns {
        let (found, name) = (theta.narrow(1, column.start, column.count()), public(&column.name));
        let expected = golden["parameters"][&name].as_array().unwrap_or_else(|| panic!("no {name}"));
        let (sum, norm) = (found.sum(Kind::Double).double_value(&[]), found.norm().double_value(&[]));
        for (ours, theirs) in [(sum, &expected[0]), (norm, &expected[1])] {
            let theirs = theirs.as_f64().unwrap();
            assert!((ours - theirs).abs() < 1e-5 * theirs.abs().max(1.0), "{name}: {ours} and {theirs}");
        }
    }
}

const IVON: [&str; 2] =
    ["method.ivon={lr=0.1,ess=32,hess_init=0.1,beta2=0.99,samples=3,particles=2}", "optimizer.none={}"];

#[track_caller]
fn trained(sets: &[&str]) -> Place {
    let place = Place::with_tiny();
    let output = place.train(&[&IVON, sets].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["ivon: posterior standard deviation"]);
    place
}

#[test]
fn draws_and_the_mean_predict_after_training() {
    let place = trained(&[]);
    let table = place.results();
    assert_eq!(table.rows.len(), 2);
    assert_eq!((cell(&table, "", "members"), cell(&table, "mean", "members")), ("6", "2"));
    assert_ne!(cell(&table, "", "nll_pm"), cell(&table, "mean", "nll_pm"));
    for draws in ["0", "3", "5"] {
        let output = place.command("eval", &[]).args(["--draws", draws]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    }
    let again = place.results();
    assert_eq!(again.rows.len(), 3, "0 draws are the mean, 3 what the config says");
    assert_eq!(cell(&again, "draws-5", "members"), "10");
    for predictive in ["", "mean"] {
        assert_eq!(cell(&table, predictive, "nll_pm"), cell(&again, predictive, "nll_pm"), "the same draws again");
    }
    let output = place.command("eval", &[]).args(["--attack", "fgsm", "--epsilon", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let attacked = place.results();
    let index = attacked.index("condition").unwrap();
    let row = attacked.rows.iter().position(|row| row[index] == "fgsm 0").unwrap();
    assert_eq!(attacked.get(row, "nll_pm"), Some(cell(&table, "", "nll_pm")), "attack and evaluation share the draws");
}

#[test]
fn points_have_nothing_to_draw_from() {
    let place = Place::with_tiny();
    assert_eq!(place.train(&[]).output().unwrap().status.code(), Some(0));
    let mut command = place.command("eval", &[]);
    command.args(["--draws", "4"]);
    assert_has(&error_line(command, 2), &["points", "nothing to draw from"]);
}

#[test]
fn whole_models_and_several_samples_work() {
    trained(&["subspace.full={}", "method.ivon.mc_samples=2", "train.accumulate=2", "train.epochs=1"]);
}

#[test]
fn bad_settings_are_refused() {
    let place = Place::with_tiny();
    for (set, parts) in [
        ("method.ivon.ess=0", &["method.ivon.ess", "0"][..]),
        ("method.ivon.beta2=1", &["method.ivon.beta2"]),
        ("method.ivon.hess_init=-1", &["method.ivon.hess_init"]),
        ("optimizer.adamw={lr=1e-3}", &["optimizer", "write [optimizer.none] for [optimizer.adamw]"]),
        ("train.clip_norm=1.0", &["clip_norm", "method.ivon"]),
        ("method.ivon.lr=[0.1,0.2,0.3]", &["3 learning rates for 2 particles"]),
    ] {
        let mut sets = IVON.to_vec();
        sets.push(set);
        assert_has(&error_line(place.train(&sets), 2), parts);
    }
    assert_has(&error_line(place.train(&["optimizer.none={}"]), 2), &["method.svgd needs an optimizer"]);
    let line = error_line(place.train(&["method.ivon={lr=0.1}", "optimizer.none={}"]), 2);
    assert_has(&line, &["method.ivon.ess", "number of training images"]);
}
