//! Distances between particles in weight space, and their gradients, for every block of a layout at once.
//!
//! For a low-rank block D_ij = ‖s B_i A_i − s B_j A_j‖²_F comes from r × r Gram blocks in f64, O(n² r² (in + out)),
//! without ever forming B A (Bella, appendix G); for dense columns from direct differences.

use std::cell::OnceCell;

use tch::{Kind, Tensor};

use super::layout::{Block, Layout, Shape};

/// Numbers of theta that are computed with at once: blocks of many particles go in turns, so that their f64 copies stay in the
/// cache, and in memory that the allocator hands out again.
const AT_ONCE: i64 = 1 << 20;

/// Pairwise squared distances in weight space and their weighted gradients.
pub struct Geometry {
    groups: Vec<Group>,
    blocks: i64,
    parameters: i64,
}

/// Squared distances, with the products behind them, which their gradients need again.
pub struct Pairs {
    /// D: `[L, n, n]` in f64, symmetric, non-negative, zero diagonal.
    pub distances: Tensor,
    /// Gram matrices of A and of B, `[G, n·r, n·r]` in f64, of each turn of each low-rank group.
    grams: Vec<(Tensor, Tensor)>,
}

/// Blocks of one shape, computed together.
struct Group {
    shape: Shape,
    /// Index in the layout and first column of each block; all have `length` columns.
    members: Vec<(i64, i64)>,
    length: i64,
    /// The members' indices on the device of the first theta seen: an upload a step would wait for the device.
    indices: OnceCell<Tensor>,
}

impl Geometry {
    pub fn new(layout: &Layout) -> Geometry {
        let mut groups: Vec<Group> = Vec::new();
        for (index, Block { columns, shape, .. }) in layout.blocks.iter().enumerate() {
            let (member, length) = ((index as i64, columns.start), columns.end - columns.start);
            let joins = |g: &&mut Group| g.shape == *shape && g.length == length && *shape != Shape::Dense;
            match groups.iter_mut().find(joins) {
                Some(group) => group.members.push(member),
                None => {
                    groups.push(Group { shape: shape.clone(), members: vec![member], length, indices: OnceCell::new() })
                }
            }
        }
        Geometry { groups, blocks: layout.blocks.len() as i64, parameters: layout.parameters() }
    }

    /// Number of blocks L.
    pub fn blocks(&self) -> i64 {
        self.blocks
    }

    /// First column and length of every block.
    pub fn block_columns(&self) -> Vec<(i64, i64)> {
        let mut columns = vec![(0, 0); self.blocks as usize];
        for group in &self.groups {
            for (index, start) in &group.members {
                columns[*index as usize] = (*start, group.length);
            }
        }
        columns
    }

    /// D: `[L, n, n]` in f64, from `theta: [n, P]`.
    pub fn distances(&self, theta: &Tensor) -> Tensor {
        self.pairs(theta).distances
    }

    /// Distances from `theta: [n, P]`, and what their gradients need.
    pub fn pairs(&self, theta: &Tensor) -> Pairs {
        let particles = theta.size()[0];
        let mut all = Tensor::zeros([self.blocks, particles, particles], (Kind::Double, theta.device()));
        let mut grams = Vec::new();
        for group in &self.groups {
            let distances = match group.shape {
                Shape::LowRank { scale, rank, .. } => {
                    let first = grams.len();
                    grams.extend(group.turns(particles).map(|turn| group.factors(theta, turn, Kind::Double).grams()));
                    let turns = grams[first..].iter().map(|pair| traces(pair, particles, rank, scale));
                    Tensor::cat(&turns.collect::<Vec<_>>(), 0)
                }
                Shape::Dense => group.dense_distances(theta),
            };
            let _ = all.index_copy_(0, group.indices(theta.device()), &distances);
        }
        Pairs { distances: all, grams }
    }

    /// Σ_j c_ij ∇_i D_ij for coefficients `c: [L, n, n]` (f64) and the `pairs` of the same theta: `[n, P]` in theta's type.
    pub fn weighted_gradients(&self, theta: &Tensor, coefficients: &Tensor, pairs: &Pairs) -> Tensor {
        let gradients = Tensor::zeros([theta.size()[0], self.parameters], (theta.kind(), theta.device()));
        let mut grams = pairs.grams.iter();
        for group in &self.groups {
            let c = coefficients.index_select(0, group.indices(theta.device()));
            // Row sums on the diagonal minus c: Σ_j c_ij (x_i − x_j) = (C' X)_i.
            let centred =
                Tensor::diag_embed(&c.sum_dim_intlist([-1i64].as_slice(), false, Kind::Double), 0, -2, -1) - c;
            match group.shape {
                Shape::LowRank { scale, .. } => {
                    let centred = centred * (2.0 * scale * scale);
                    group.low_rank_gradients(theta, &centred, &mut grams, &gradients);
                }
                Shape::Dense => group.dense_gradients(theta, &centred, &gradients),
            }
        }
        gradients
    }
}

/// Factors of G blocks of one shape: A `[G, n·r, in]`, Bᵀ `[G, n·r, out]`.
struct Factors {
    a: Tensor,
    b: Tensor,
}

impl Factors {
    fn grams(&self) -> (Tensor, Tensor) {
        (self.a.bmm(&self.a.transpose(1, 2)), self.b.bmm(&self.b.transpose(1, 2)))
    }
}

/// `[G, n, n]`: D_ij = s² (⟨i,i⟩ + ⟨j,j⟩ − 2 ⟨i,j⟩), ⟨i,j⟩ = tr((B_iᵀ B_j)(A_j A_iᵀ)); cancellation clamped at 0.
fn traces((gram_a, gram_b): &(Tensor, Tensor), n: i64, rank: i64, scale: f64) -> Tensor {
    let products = (gram_a * gram_b).view([-1, n, rank, n, rank]);
    let inner = products.sum_dim_intlist([2i64, 4].as_slice(), false, Kind::Double);
    let own = inner.diagonal(0, 1, 2);
    let distances = own.unsqueeze(2) + own.unsqueeze(1) - inner * 2.0;
    let distances = (distances * (scale * scale)).clamp_min(0.0);
    let off = 1.0 - Tensor::eye(n, (Kind::Double, distances.device()));
    distances * off
}

impl Group {
    fn indices(&self, device: tch::Device) -> &Tensor {
        self.indices.get_or_init(|| {
            let indices: Vec<i64> = self.members.iter().map(|(index, _)| *index).collect();
            Tensor::from_slice(&indices).to_device(device)
        })
    }

    fn dense(&self, theta: &Tensor) -> Tensor {
        theta.narrow(1, self.members[0].1, self.length)
    }

    /// Members that are computed together.
    fn turns(&self, particles: i64) -> impl Iterator<Item = &[(i64, i64)]> {
        self.members.chunks((AT_ONCE / (particles * self.length)).max(1) as usize)
    }

    fn factors(&self, theta: &Tensor, members: &[(i64, i64)], kind: Kind) -> Factors {
        let Shape::LowRank { rank, inputs, outputs, .. } = self.shape else {
            unreachable!("only low-rank groups have factors")
        };
        let n = theta.size()[0];
        let part = |offset: i64, length: i64| -> Vec<Tensor> {
            members.iter().map(|(_, start)| theta.narrow(1, start + offset, length)).collect()
        };
        let a = Tensor::stack(&part(0, rank * inputs), 0).to_kind(kind).view([-1, n * rank, inputs]);
        let b = Tensor::stack(&part(rank * inputs, outputs * rank), 0).to_kind(kind);
        let b = b.view([-1, n, outputs, rank]).transpose(2, 3).reshape([-1, n * rank, outputs]);
        Factors { a, b }
    }

    /// ∇_{A_i} = Σ_j c'_ij (B_iᵀ B_j) A_j and ∇_{B_i}ᵀ = Σ_j c'_ij (A_i A_jᵀ) B_jᵀ, with 2 s² in c'. Grams are those of the
    /// turns, in f64; the sums over particles run in theta's type, in which their result is kept.
    fn low_rank_gradients<'a>(
        &self,
        theta: &Tensor,
        centred: &Tensor,
        grams: &mut impl Iterator<Item = &'a (Tensor, Tensor)>,
        gradients: &Tensor,
    ) {
        let Shape::LowRank { rank, inputs, outputs, .. } = self.shape else {
            unreachable!("only low-rank groups have factors")
        };
        let (n, kind) = (theta.size()[0], theta.kind());
        let mut done = 0;
        for (turn, (gram_a, gram_b)) in self.turns(n).zip(grams) {
            let factors = self.factors(theta, turn, kind);
            let centred = centred.narrow(0, done, turn.len() as i64);
            let mixing = centred.repeat_interleave_self_int(rank, 1, None).repeat_interleave_self_int(rank, 2, None);
            let by_a = (&mixing * gram_b).to_kind(kind).bmm(&factors.a).view([-1, n, rank * inputs]);
            let by_b = (&mixing * gram_a).to_kind(kind).bmm(&factors.b);
            let by_b = by_b.view([-1, n, rank, outputs]).transpose(2, 3);
            for (at, (_, start)) in turn.iter().enumerate() {
                gradients.narrow(1, *start, rank * inputs).copy_(&by_a.get(at as i64));
                let rows = gradients.narrow(1, *start + rank * inputs, outputs * rank);
                rows.unflatten(1, [outputs, rank].as_slice()).copy_(&by_b.get(at as i64));
            }
            done += turn.len() as i64;
        }
    }

    fn dense_distances(&self, theta: &Tensor) -> Tensor {
        /// `cdist` by direct differences: a product would cancel.
        const WITHOUT_PRODUCT: i64 = 2;
        let x = self.dense(theta).to_kind(Kind::Double);
        let distances = Tensor::cdist(&x, &x, 2.0, WITHOUT_PRODUCT).square();
        distances.unsqueeze(0)
    }

    fn dense_gradients(&self, theta: &Tensor, centred: &Tensor, gradients: &Tensor) {
        let x = self.dense(theta);
        // Rows of c' sum to 0, so a common offset drops out; taken off first, it does not cost digits either.
        let x = &x - x.mean_dim([0i64].as_slice(), true, x.kind());
        let product = (centred.squeeze_dim(0) * 2.0).to_kind(theta.kind()).matmul(&x);
        gradients.narrow(1, self.members[0].1, self.length).copy_(&product);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        for name in ["first", "second"] {
            let start = layout.parameters();
            layout.push(format!("{name}.A"), &[2, 5]);
            layout.push(format!("{name}.B"), &[3, 2]);
            layout.close_block(name, start, Shape::LowRank { rank: 2, inputs: 5, outputs: 3, scale: 1.5 });
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

    /// The definition: ΔW formed, differences squared.
    fn direct(theta: &Tensor) -> Tensor {
        let n = theta.size()[0];
        let dense = |start: i64| {
            let a = theta.narrow(1, start, 10).reshape([n, 2, 5]);
            let b = theta.narrow(1, start + 10, 6).reshape([n, 3, 2]);
            (b.bmm(&a) * 1.5).reshape([n, -1])
        };
        let blocks = [dense(0), dense(16), theta.narrow(1, 32, 4)];
        let distance = |x: &Tensor| {
            (x.unsqueeze(0) - x.unsqueeze(1)).square().sum_dim_intlist([2i64].as_slice(), false, Kind::Double)
        };
        Tensor::stack(&blocks.iter().map(distance).collect::<Vec<_>>(), 0)
    }

    fn max_difference(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn traces_equal_formed_products() {
        let theta = theta(4);
        let distances = Geometry::new(&layout()).distances(&theta);
        assert!(max_difference(&distances, &direct(&theta)) < 1e-12);
    }

    #[test]
    fn gradients_equal_autograd() {
        let leaf = theta(4).set_requires_grad(true);
        let c = Tensor::from_slice(&(0..48).map(|i| (i as f64 * 0.37).sin()).collect::<Vec<_>>()).view([3, 4, 4]);
        let c = (&c + c.transpose(1, 2)) / 2.0;
        // Each unordered pair appears twice in the sum, D_ij also depends on j: half the gradient of Σ c_ij D_ij is ours.
        let total = (&c * direct(&leaf)).sum(Kind::Double) / 2.0;
        let expected = Tensor::run_backward(&[total], &[&leaf], false, false);
        let ours = {
            let (geometry, theta) = (Geometry::new(&layout()), leaf.detach());
            geometry.weighted_gradients(&theta, &c, &geometry.pairs(&theta))
        };
        assert!(max_difference(&ours, &expected[0]) < 1e-12);
    }

    #[test]
    fn close_particles_keep_their_distance_in_f32() {
        let first = theta(1).to_kind(Kind::Float);
        let second = &first * (1.0 + 1e-3);
        let theta = Tensor::cat(&[first, second], 0);
        let ours = Geometry::new(&layout()).distances(&theta);
        let expected = direct(&theta.to_kind(Kind::Double));
        let relative = ((&ours - &expected).abs() / expected.clamp_min(1e-30)).max().double_value(&[]);
        assert!(relative < 1e-6, "{relative}");
    }

    /// Blocks of so many particles go one by one; the first three particles must not notice.
    #[test]
    fn turns_change_nothing() {
        let mut layout = Layout::default();
        for name in ["first", "second"] {
            let start = layout.parameters();
            layout.push(format!("{name}.A"), &[2, 2000]);
            layout.push(format!("{name}.B"), &[2200, 2]);
            layout.close_block(name, start, Shape::LowRank { rank: 2, inputs: 2000, outputs: 2200, scale: 1.5 });
        }
        let geometry = Geometry::new(&layout);
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
        let gradients = geometry.weighted_gradients(&few, &c, &three);
        let all = geometry.weighted_gradients(&theta, &padded, &many);
        assert!(max_difference(&all.narrow(0, 0, 3), &gradients) < 1e-9 * gradients.abs().max().double_value(&[]));
    }
}
