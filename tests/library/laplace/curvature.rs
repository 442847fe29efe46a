//! The curvature of a vision transformer against the dense one, and what it costs.

use super::*;

#[test]
fn full_curvature_of_a_vision_transformer_equals_the_dense_one() {
    for setting in Setting::all() {
        let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
        let (logits, jacobian) = setting.dense(&images);
        let p = logits.softmax(-1, Kind::Double);
        let lambda = p.diag_embed(0, 1, 2) - p.unsqueeze(2).bmm(&p.unsqueeze(1));
        let h = jacobian.transpose(1, 2).bmm(&lambda.bmm(&jacobian)).sum_dim_intlist(
            [0i64].as_slice(),
            false,
            Kind::Double,
        );
        let curvature = fitted(&maps, shape(Structure::Full), &[setting.pass(&maps, &images)]);
        let Curvature::Full(Factor { vectors, values }) = &curvature else { panic!("not full") };
        near(&(vectors * values).matmul(&vectors.tr()), &h, 1e-9, "full");
        let Curvature::Diag(diagonal) = fitted(&maps, shape(Structure::Diag), &[setting.pass(&maps, &images)]) else {
            panic!("not diagonal")
        };
        near(&diagonal, &h.diagonal(0, 0, 1), 1e-9, "diag");
        let identity = Tensor::eye(maps.parameters(), F64) * 0.3;
        let inverse = (&h + identity).inverse();
        let v = jacobian.matmul(&inverse).bmm(&jacobian.transpose(1, 2));
        let ours = Projected::new(&curvature, &maps, &setting.pass(&maps, &images)).unwrap().variance(0.3).unwrap();
        near(&ours, &v, 1e-8, "V of full");
    }
}

/// H of a Kronecker approximation, `[P, P]`, formed.
fn formed(curvature: &Curvature) -> Tensor {
    let Curvature::Kron(pairs) = curvature else { panic!("not kron") };
    let matrix = |f: &Factor| (&f.vectors * &f.values).matmul(&f.vectors.tr());
    let blocks: Vec<Tensor> = pairs.iter().map(|pair| matrix(&pair.gradient).kron(&matrix(&pair.input))).collect();
    Tensor::block_diag(&blocks)
}

#[test]
fn kron_of_a_vision_transformer_predicts_as_its_formed_matrix() {
    for setting in Setting::all() {
        let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
        let jacobian = setting.dense(&images).1;
        // All sides dense; wide ones at low rank.
        for wide in [512, 8] {
            for tokens in [Tokens::Expand, Tokens::Reduce] {
                let shape = Shape { structure: Structure::Kron, tokens, wide, kept: 3 };
                let curvature = fitted(&maps, shape, &[setting.pass(&maps, &images)]);
                let precision = formed(&curvature) + Tensor::eye(maps.parameters(), F64) * 0.3;
                let v = jacobian.matmul(&precision.inverse()).bmm(&jacobian.transpose(1, 2));
                let pass = setting.pass(&maps, &images);
                let ours = Projected::new(&curvature, &maps, &pass).unwrap().variance(0.3).unwrap();
                near(&ours, &v, 1e-8, &format!("V, wide {wide}, {tokens:?}"));
                let evidence = Evidence::new(&curvature, &setting.theta.get(0), -1.0).unwrap().at(0.3);
                let log_det = precision.logdet().double_value(&[]) - maps.parameters() as f64 * 0.3f64.ln();
                let penalty = 0.3 * setting.theta.square().sum(Kind::Double).double_value(&[]);
                assert!((evidence + 1.0 + 0.5 * (log_det + penalty)).abs() < 1e-8 * log_det.abs(), "{evidence}");
            }
        }
    }
}

/// The prompts one after the other, each in a batch as long as itself.
fn prompts_alone() -> Vec<Fields> {
    let lengths = [(0, 6), (2, 4), (1, 2)];
    lengths.iter().map(|(at, tokens)| prompts().map(|row| row.narrow(1, *at, 1).narrow(2, 0, *tokens))).collect()
}

/// Tokens that only fill up a text are no data, wherever a batch ends.
#[test]
fn kron_of_a_language_network_is_the_same_in_batches_of_other_lengths() {
    let setting = Setting::language();
    let maps = Maps::all(&*setting.subspace).unwrap();
    for tokens in [Tokens::Expand, Tokens::Reduce] {
        let shape = Shape { tokens, ..shape(Structure::Kron) };
        let together = fitted(&maps, shape, &[setting.pass(&maps, &prompts())]);
        let alone: Vec<Pass> = prompts_alone().iter().map(|prompt| setting.pass(&maps, prompt)).collect();
        near(&formed(&fitted(&maps, shape, &alone)), &formed(&together), 1e-10, &format!("{tokens:?}"));
    }
}

#[test]
fn drawn_weights_have_the_covariance_of_the_formed_matrix() {
    let setting = Setting::new("timm_scripted.pt", "[head.checkpoint]");
    let (maps, images) = (Maps::all(&*setting.subspace).unwrap(), setting.images(3));
    for (structure, wide) in [(Structure::Kron, 8), (Structure::Kron, 512), (Structure::Diag, 8), (Structure::Full, 8)]
    {
        let shape = Shape { structure, tokens: Tokens::Expand, wide, kept: 3 };
        let curvature = fitted(&maps, shape, &[setting.pass(&maps, &images)]);
        // The map from noise to deviation is a matrix M with M Mᵀ (H + τ) = 1: probe it with Jᵀ, since it is symmetric.
        let jacobian = setting.dense(&images).1.reshape([-1, maps.parameters()]);
        let rows: Vec<Tensor> = (0..jacobian.size()[0]).map(|i| curvature.deviation(0.3, &jacobian.get(i))).collect();
        let rows = Tensor::stack(&rows, 0);
        let v = rows.matmul(&rows.tr());
        let projected =
            Projected::new(&curvature, &maps, &setting.pass(&maps, &images)).unwrap().variance(0.3).unwrap();
        let classes = projected.size()[1];
        let blocks: Vec<Tensor> =
            (0..3).map(|n| v.narrow(0, n * classes, classes).narrow(1, n * classes, classes)).collect();
        near(&Tensor::stack(&blocks, 0), &projected, 1e-8, &format!("{structure:?}, wide {wide}"));
    }
}

#[test]
fn the_last_layer_of_a_vision_transformer_equals_its_formed_jacobian() {
    let setting = Setting::new("openai_visual.pt", "[head.linear]");
    let (maps, images) = (Maps::last_layer(&*setting.subspace).unwrap(), setting.images(4));
    let jacobian = setting.dense(&images).1.narrow(2, maps.columns.start, maps.parameters());
    for wide in [512, 8] {
        let shape = Shape { structure: Structure::Kron, tokens: Tokens::Expand, wide, kept: 3 };
        let curvature = fitted(&maps, shape, &[setting.pass(&maps, &images)]);
        let inverse = (formed(&curvature) + Tensor::eye(maps.parameters(), F64) * 0.3).inverse();
        let v = jacobian.matmul(&inverse).bmm(&jacobian.transpose(1, 2));
        let pass = setting.pass(&maps, &images);
        let ours = Projected::new(&curvature, &maps, &pass).unwrap().variance(0.3).unwrap();
        near(&ours, &v, 1e-8, &format!("last layer, wide {wide}"));
    }
    let frozen = Setting::new("timm_scripted.pt", "[head.checkpoint]");
    let error = Maps::last_layer(&*frozen.subspace).unwrap_err().to_string();
    assert!(error.contains("does not train its head"), "{error}");
}

/// The processor seconds in user mode that `work` takes.
fn user_seconds(work: impl Fn()) -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields = stat.rsplit(')').next().unwrap();
        fields.split_whitespace().nth(11).unwrap().parse::<f64>().unwrap() / 100.0
    };
    let before = ticks();
    work();
    ticks() - before
}

/// What a fit and a prediction of `results/laplace.md` cost beside a training step and an ensemble.
#[test]
#[ignore = "prints processor seconds; BELLA_VIT is an archive of scripts/make_random_vit.py --architecture vit-b-32"]
fn the_cost_with_345_classes() {
    let archive = std::env::var("BELLA_VIT").unwrap();
    let text = format!(
        "name = \"x\"\nseed = 1\n[checkpoint]\npath = {archive:?}\nnormalize = \"clip\"\n[head.linear]\n[data.digits]\n\
         [subspace.low-rank]\nrank = 4\n[method.laplace]\n[optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 1\nbatch_size = 8\n"
    );
    let (model, subspace) = model_of(&text, Kind::Float, 345);
    let theta = subspace.initial(1, 0).unwrap().unsqueeze(0);
    let (layout, side) = (subspace.layout(), model.image_side());
    let images = |count: i64| {
        let bytes = Tensor::randint(256, [1, count, 3, side, side], (Kind::Uint8, Device::Cpu));
        model.preparation.prepare(&Fields::of(PIXELS, bytes))
    };
    let (maps, batch) = (Maps::all(&*subspace).unwrap(), images(8));
    let step = || {
        let leaves = layout.leaves(&theta, Kind::Float, true);
        let logits = model.logits(&subspace.weights(&model.base, &leaves), &batch).squeeze_dim(0);
        let loss = logits.cross_entropy_for_logits(&Tensor::arange(8, (Kind::Int64, Device::Cpu)));
        Tensor::f_run_backward(&[loss], &leaves, false, false).unwrap();
    };
    step();
    let step = user_seconds(step);
    let fit = |draws: i64| {
        user_seconds(|| {
            let pass = Pass::new(&model, &*subspace, &maps, &theta, &batch).unwrap();
            let labels = Labels::Drawn { draws, seed: 1, particle: 0 };
            Fit::new(&maps, shape(Structure::Kron), labels, Device::Cpu).add(&pass).unwrap();
        })
    };
    let (one, five) = (fit(1), fit(5));
    let exact = one + (five - one) / 4.0 * 343.0;
    println!(
        "8 images: step {step:.2} s, fit by 1 drawn label {one:.2} s ({:.2} x), exact {exact:.1} s ({:.0} x) by 5 draws",
        one / step,
        exact / step
    );
    let (few, draws) = (images(1), 64);
    let rows = Tensor::randn([draws, layout.parameters()], (Kind::Float, Device::Cpu)) * 0.01;
    let ensemble = user_seconds(|| {
        let _ = tch::no_grad(|| {
            let leaves = layout.leaves(&(&rows + &theta), Kind::Float, false);
            model.logits(&subspace.weights(&model.base, &leaves), &few)
        });
    });
    let tangent = user_seconds(|| {
        let moves = Moves { subspace: &*subspace, maps: &maps, theta: &theta, moves: &rows };
        moves.logits(&model, &few).unwrap();
    });
    println!("1 image, 64 draws: ensemble {ensemble:.2} s, tangents {tangent:.2} s ({:.2} x)", tangent / ensemble);
}
