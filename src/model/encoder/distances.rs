//! Scores of attention that depend on the distances of tokens. With disentangled distances (He et al. 2021, arXiv 2006.03654, equation 4), query t
//! reads the row of its distance t − s to key s, and key s reads the row of the same distance. With learnt numbers (Raffel et al. 2020,
//! arXiv 1910.10683), a number for each head and bucket of distances is added.

use tch::{Device, Kind, Tensor};

use crate::model::families::encoders::{Distances, RELATIVE};
use crate::model::network::ops::{Constant, Ops};

/// The rows of distances, and the factor of scores.
#[derive(Debug)]
pub struct Disentangled {
    distances: Distances,
    /// The factor (m D)^(−1/2) of m terms of scores and D channels.
    pub scale: f64,
    rows: Constant,
    factor: Constant,
}

/// The heads of one block: queries and keys of tokens, and those of the table of distances, `[p, B or 1, heads, T or R, D]`.
pub struct Heads<V> {
    pub query: V,
    pub key: V,
    pub far_query: V,
    pub far_key: V,
}

impl Disentangled {
    /// Takes heads of `channels` channels.
    pub fn new(distances: Distances, channels: i64) -> Disentangled {
        let terms = 1 + i64::from(distances.from_queries) + i64::from(distances.from_keys);
        let [rows, factor] = ["text.distances", "text.distance_scale"].map(Constant::new);
        Disentangled { distances, scale: ((terms * channels) as f64).powf(-0.5), rows, factor }
    }

    /// Returns what is added to the scores of the first queries, `[p, B, heads, Tq, T]`; `None` if nothing is.
    pub fn scores<O: Ops>(&self, ops: &O, heads: &Heads<O::Value>) -> Option<O::Value> {
        let Distances { from_queries, from_keys, .. } = self.distances;
        let (tokens, queries) = (ops.length(&heads.key, 3), ops.length(&heads.query, 3));
        let rows = ops.constant(&self.rows, &[tokens], &heads.key, |(_, device)| self.rows(tokens, device));
        let rows = ops.slice(&rows, 0, 0, queries);
        let by_queries = from_queries.then(|| ops.relative(&heads.query, &self.scaled(ops, &heads.far_key), &rows));
        let by_keys = from_keys.then(|| {
            let scores = ops.relative(&heads.key, &self.scaled(ops, &heads.far_query), &ops.permute(&rows, &[1, 0]));
            ops.permute(&scores, &[0, 1, 2, 4, 3])
        });
        match (by_queries, by_keys) {
            (Some(one), Some(other)) => Some(ops.add(one, other)),
            (one, other) => one.or(other),
        }
    }

    fn scaled<O: Ops>(&self, ops: &O, table: &O::Value) -> O::Value {
        let factor = ops.constant(&self.factor, &[], table, |(kind, device)| {
            Tensor::from_slice(&[self.scale]).to_kind(kind).to_device(device)
        });
        ops.mul(ops.again(table), factor)
    }

    /// Returns the rows of the table for queries and keys, `[T, T]`.
    fn rows(&self, tokens: i64, device: Device) -> Tensor {
        let places = Tensor::arange(tokens, (Kind::Int64, device));
        let apart = places.unsqueeze(1) - places.unsqueeze(0);
        let apart = match self.distances.buckets {
            Some(buckets) => bucketed(&apart, buckets, self.distances.most),
            None => apart,
        };
        let span = self.distances.span();
        (apart + span).clamp(0, 2 * span - 1)
    }
}

/// The buckets of distances that have a learnt number for each head.
#[derive(Debug)]
pub struct Buckets {
    /// The number of buckets, of which half are for keys behind their queries.
    buckets: i64,
    /// The distance from which on all share a bucket.
    most: i64,
    rows: Constant,
}

impl Buckets {
    pub fn new(buckets: i64, most: i64) -> Buckets {
        Buckets { buckets, most, rows: Constant::new("text.buckets") }
    }

    /// Returns what is added to the scores of the first `queries` of tokens `[p, B, T, d]`, `[p, 1, heads, queries, T]`.
    pub fn scores<O: Ops>(&self, ops: &O, tokens: &O::Value, queries: i64) -> Option<O::Value> {
        let length = ops.length(tokens, 2);
        let rows = ops.constant(&self.rows, &[length], tokens, |(_, device)| self.rows(length, device));
        let scores = ops.picked(&[format!("{RELATIVE}.weight")], &rows)?;
        let heads = ops.length(&scores, 3);
        let scores = ops.permute(&ops.reshape(&scores, &[length, length, heads]), &[0, 1, 4, 2, 3]);
        Some(ops.slice(&scores, 3, 0, queries))
    }

    /// Returns the row of the table for each query and key, `[T · T]`. Near distances have rows of their own, and farther ones share rows
    /// by their logarithms, in f32 as in transformers.
    fn rows(&self, tokens: i64, device: Device) -> Tensor {
        let places = Tensor::arange(tokens, (Kind::Int64, device));
        let apart = places.unsqueeze(1) - places.unsqueeze(0);
        let half = self.buckets / 2;
        let exact = half / 2;
        let far = apart.abs();
        let widest = (self.most as f64 / exact as f64).ln();
        let shared = (far.to_kind(Kind::Float) / exact).log() / widest * (half - exact);
        let shared = (shared.to_kind(Kind::Int64) + exact).clamp_max(half - 1);
        let bucket = far.where_self(&far.lt(exact), &shared) + apart.lt(0).to_kind(Kind::Int64) * half;
        bucket.view([-1])
    }
}

/// Returns distances up to half of the buckets as they are, and farther ones in buckets of logarithmic widths, up to `most`. They are
/// computed in f32, by which transformers rounds them.
fn bucketed(apart: &Tensor, buckets: i64, most: i64) -> Tensor {
    let half = buckets / 2;
    let far = apart.abs();
    let near = far.lt(half);
    let far = far.where_scalarother(&near.logical_not(), half - 1);
    let widest = Tensor::from(((most - 1) as f64 / half as f64) as f32).to_device(apart.device()).log();
    let bucket = ((far.to_kind(Kind::Float) / half).log() / widest * (half - 1)).ceil() + half;
    let whole = apart.to_kind(Kind::Float);
    whole.where_self(&far.le(half), &(bucket * apart.sign())).to_kind(Kind::Int64)
}
