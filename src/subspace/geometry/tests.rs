use super::*;

/// Appends a low-rank block of rank 2.
fn push_block(layout: &mut Layout, name: &str, inputs: i64, outputs: i64) {
    let start = layout.parameters();
    layout.push(format!("{name}.A"), &[2, inputs]);
    layout.push(format!("{name}.B"), &[outputs, 2]);
    layout.close_block(name, start, Shape::LowRank { rank: 2, inputs, outputs, scale: 1.5 });
}

fn layout() -> Layout {
    let mut layout = Layout::default();
    for name in ["first", "second"] {
        push_block(&mut layout, name, 5, 3);
    }
    let start = layout.parameters();
    layout.push("head.weight", &[4]);
    layout.close_block("head", start, Shape::Dense);
    layout
}

fn theta(particles: i64) -> Tensor {
    let count = particles * layout().parameters();
    let values: Vec<f64> = (0..count).map(|i| ((i * 7919 % 1009) as f64 / 1009.0 - 0.5) * 2.0).collect();
    Tensor::from_slice(&values).view([particles, -1])
}

/// Computes the distances by definition: ΔW is formed, and differences are squared.
fn direct(theta: &Tensor) -> Tensor {
    let n = theta.size()[0];
    let dense = |start: i64| {
        let a = theta.narrow(1, start, 10).reshape([n, 2, 5]);
        let b = theta.narrow(1, start + 10, 6).reshape([n, 3, 2]);
        (b.bmm(&a) * 1.5).reshape([n, -1])
    };
    let blocks = [dense(0), dense(16), theta.narrow(1, 32, 4)];
    let distance =
        |x: &Tensor| (x.unsqueeze(0) - x.unsqueeze(1)).square().sum_dim_intlist([2i64].as_slice(), false, Kind::Double);
    Tensor::stack(&blocks.iter().map(distance).collect::<Vec<_>>(), 0)
}

fn max_difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

/// Returns the weighted gradients alone, and checks the norm that is returned with them.
fn weighted_gradients(geometry: &WeightSpace, theta: &Tensor, c: &Tensor, pairs: &Pairs) -> Tensor {
    let sum = theta.zeros_like();
    let norm = geometry.add_weighted_gradients(theta, c, pairs, &sum).double_value(&[]);
    let expected = sum.norm().double_value(&[]);
    assert!((norm - expected).abs() < 1e-12 * expected, "{norm} is not {expected}");
    sum
}

#[test]
fn traces_equal_formed_products() {
    let theta = theta(4);
    let distances = WeightSpace::new(&layout()).distances(&theta);
    assert!(max_difference(&distances, &direct(&theta)) < 1e-12);
}

#[test]
fn gradients_equal_autograd() {
    let leaf = theta(4).set_requires_grad(true);
    let c = Tensor::from_slice(&(0..48).map(|i| (i as f64 * 0.37).sin()).collect::<Vec<_>>()).view([3, 4, 4]);
    let c = (&c + c.transpose(1, 2)) / 2.0;
    // Each unordered pair appears twice in the sum, and D_ij also depends on j, so the expected gradient is half that
    // of Σ c_ij D_ij.
    let total = (&c * direct(&leaf)).sum(Kind::Double) / 2.0;
    let expected = Tensor::run_backward(&[total], &[&leaf], false, false);
    let ours = {
        let (geometry, theta) = (WeightSpace::new(&layout()), leaf.detach());
        weighted_gradients(&geometry, &theta, &c, &geometry.pairs(&theta))
    };
    assert!(max_difference(&ours, &expected[0]) < 1e-12);
}

fn worst_relative_error(theta: &Tensor) -> f64 {
    let distances = WeightSpace::new(&layout()).distances(theta);
    let expected = direct(&theta.to_kind(Kind::Double));
    ((&distances - &expected).abs() / expected.clamp_min(1e-30)).max().double_value(&[])
}

#[test]
fn close_particles_keep_their_distance_in_f32() {
    let first = theta(1).to_kind(Kind::Float);
    let second = &first * (1.0 + 1e-3);
    let far = &first * -2.0;
    let error = worst_relative_error(&Tensor::cat(&[first, second, far], 0));
    assert!(error < 1e-6, "{error}");
}

#[test]
fn far_particles_keep_theirs() {
    let error = worst_relative_error(&theta(4).to_kind(Kind::Float));
    assert!(error < 1e-5, "{error}");
}

#[test]
fn a_group_is_of_blocks_at_even_distances() {
    let mut layout = Layout::default();
    for (name, gap) in [("0", 0), ("1", 0), ("2", 3), ("3", 0)] {
        let begin = layout.parameters();
        if gap > 0 {
            layout.push(format!("{name}.bias"), &[gap]);
            layout.close_block(format!("{name}.bias"), begin, Shape::Dense);
        }
        push_block(&mut layout, name, 5, 3);
    }
    let groups: Vec<Vec<i64>> = WeightSpace::new(&layout).groups.iter().map(|g| g.starts.clone()).collect();
    assert_eq!(groups, [vec![0, 16], vec![32], vec![35, 51]]);
}

/// Blocks of this many particles are computed one by one, which must not change the results of the first three
/// particles.
#[test]
fn turns_change_nothing() {
    let mut layout = Layout::default();
    for name in ["first", "second"] {
        push_block(&mut layout, name, 2000, 2200);
    }
    let geometry = WeightSpace::new(&layout);
    assert_eq!([3, 300].map(|n| geometry.groups[0].turns(n).count()), [1, 2]);
    let count = 300 * layout.parameters();
    let theta = Tensor::arange(count, (Kind::Double, tch::Device::Cpu)).sin().view([300, -1]);
    let c = Tensor::from_slice(&(0..18).map(|i| (i as f64 * 0.37).sin()).collect::<Vec<_>>()).view([2, 3, 3]);
    let padded = c.constant_pad_nd([0, 297, 0, 297]);
    let few = theta.narrow(0, 0, 3);
    let (many, three) = (geometry.pairs(&theta), geometry.pairs(&few));
    let (all, distances) = (&many.distances, &three.distances);
    assert!(
        max_difference(&all.narrow(1, 0, 3).narrow(2, 0, 3), distances)
            < 1e-9 * distances.abs().max().double_value(&[])
    );
    let gradients = weighted_gradients(&geometry, &few, &c, &three);
    let all = weighted_gradients(&geometry, &theta, &padded, &many);
    assert!(max_difference(&all.narrow(0, 0, 3), &gradients) < 1e-9 * gradients.abs().max().double_value(&[]));
}
