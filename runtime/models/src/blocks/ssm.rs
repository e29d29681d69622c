//! Selective state space models (Mamba, arXiv 2312.00752, and Mamba 2, 2405.21060): a short convolution and a scan, each
//! with a state per sequence. A mixer comes in two parts, so that the second runs on the rows of the outputs alone.

use super::norm_each_head;
use super::recurrent::{Sequences, conv_state, convolution, outputs_and_states, sequences};
use crate::builder::Builder;
use crate::cache::StateTensor;
use crate::error::Result;
use llmrt_graph::{Activation, Role, Tensor};

/// Mamba 2 of `h`, mixed, and `x`: [n_embd, n], in the last layer the outputs alone.
pub(crate) fn mamba2_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let [y, gate] = mamba2(b, h)?; // [n_inner, n_tokens]
    let [y, gate, x] = b.keep_outputs([y, gate, x]);
    Ok([mamba2_output(b, y, gate)?, x])
}

/// Mamba of `h`, mixed, and `x`: [n_embd, n], in the last layer the outputs alone.
pub(crate) fn mamba_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let [y, gate] = mamba(b, h)?; // [n_inner, n_tokens]
    let [y, gate, x] = b.keep_outputs([y, gate, x]);
    Ok([mamba_output(b, y, gate)?, x])
}

/// The scan of `x` [n_embd, n_tokens], and the gate that its result is multiplied with: both [n_inner, n_tokens].
fn mamba2(b: &mut Builder<'_>, x: Tensor) -> Result<[Tensor; 2]> {
    let ssm = &b.cfg.ssm;
    let (n_inner, n_conv, n_bc) = (ssm.n_inner, ssm.n_conv(), ssm.n_group * ssm.n_state);
    let all = b.linear("ssm_in", n_inner + n_conv + ssm.n_head, x)?;
    let gate = b.g.slice(all, 0, 0, n_inner);
    let xbc = b.g.slice(all, 0, n_inner, n_conv);
    let dt = b.g.slice(all, 0, n_inner + n_conv, ssm.n_head);

    let scan = SsmScan::new(b);
    let xbc = scan.convolution(b, xbc)?; // [n_conv, n_tokens]
    let x = b.g.slice(xbc, 0, 0, n_inner);
    let [in_b, in_c] = [0, n_bc].map(|start| b.g.slice(xbc, 0, n_inner + start, n_bc));
    let bias = b.weight("ssm_dt.bias", &[ssm.n_head], Role::Bias)?;
    let dt = b.g.add(dt, bias); // [n_head, n_tokens]
    let (a, d) = (b.per_head("ssm_a", ssm.n_head)?, b.per_head("ssm_d", ssm.n_head)?);
    Ok([scan.run(b, x, dt, [in_b, in_c], a, d), gate])
}

/// (y · silu(gate)), normed in groups if the file has a norm, mixed: [n_embd, n].
fn mamba2_output(b: &mut Builder<'_>, y: Tensor, gate: Tensor) -> Result<Tensor> {
    let (n_inner, n_group, n) = (b.cfg.ssm.n_inner, b.cfg.ssm.n_group, b.g.ne(y)[1]);
    let mut y = b.g.glu(Activation::Silu, gate, Some(y));
    if b.has("ssm_norm.weight") {
        let groups = b.g.split_heads(y, n_group);
        let normed = norm_each_head(b, "ssm_norm", n_inner / n_group, groups)?;
        y = b.g.reshape(normed, &[n_inner, n]);
    }
    b.linear("ssm_out", b.cfg.n_embd, y)
}

/// As `mamba2`: Δ, B and C are made of the convolution's result, and each element is a head.
fn mamba(b: &mut Builder<'_>, x: Tensor) -> Result<[Tensor; 2]> {
    let ssm = &b.cfg.ssm;
    let (n_inner, n_state, dt_rank) = (ssm.n_inner, ssm.n_state, ssm.dt_rank);
    let both = b.linear("ssm_in", 2 * n_inner, x)?;
    let [x, gate] = [0, n_inner].map(|start| b.g.slice(both, 0, start, n_inner));

    let scan = SsmScan::new(b);
    let x = scan.convolution(b, x)?; // [n_inner, n_tokens]
    let all = b.linear("ssm_x", dt_rank + 2 * n_state, x)?;
    let dt = b.g.slice(all, 0, 0, dt_rank);
    let [in_b, in_c] = [0, n_state].map(|start| b.g.slice(all, 0, dt_rank + start, n_state));
    let dt = mamba_norm(b, "ssm_dt_norm", dt)?;
    let (in_b, in_c) = (mamba_norm(b, "ssm_b_norm", in_b)?, mamba_norm(b, "ssm_c_norm", in_c)?);
    let dt = b.linear("ssm_dt", n_inner, dt)?; // [n_inner, n_tokens]

    let a = b.weight("ssm_a", &[n_state, n_inner], Role::Other)?;
    let d = b.per_head("ssm_d", n_inner)?;
    Ok([scan.run(b, x, dt, [in_b, in_c], a, d), gate])
}

/// (y · silu(gate)), mixed: [n_embd, n].
pub(crate) fn mamba_output(b: &mut Builder<'_>, y: Tensor, gate: Tensor) -> Result<Tensor> {
    let y = b.g.glu(Activation::Silu, gate, Some(y));
    b.linear("ssm_out", b.cfg.n_embd, y)
}

/// The norm of Δ, B or C, of models that have it (Jamba, and Falcon Mamba without weights).
fn mamba_norm(b: &mut Builder<'_>, name: &str, x: Tensor) -> Result<Tensor> {
    match b.has(&format!("{name}.weight")) {
        true => b.norm(name, x),
        false if b.cfg.ssm.has_norms => Ok(b.g.rms_norm(x, None, b.cfg.norm_eps)),
        false => Ok(x),
    }
}

/// A layer's convolution and scan, with their states.
pub(crate) struct SsmScan {
    of: Sequences,
    conv_state: Tensor,
    scan_state: Tensor,
}

impl SsmScan {
    pub fn new(b: &mut Builder<'_>) -> SsmScan {
        let ssm = &b.cfg.ssm;
        let [conv_state, scan_state] = b.states([
            conv_state("conv_state", ssm.n_taps, ssm.n_conv()),
            StateTensor { name: "scan_state", row: ssm.scan_row() },
        ]);
        SsmScan { of: sequences(b), conv_state, scan_state }
    }

    /// silu(convolution of each channel of `x` + bias): [n_conv, n_tokens].
    pub fn convolution(&self, b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
        let dims = [b.cfg.ssm.n_taps, b.cfg.ssm.n_conv()];
        let y = convolution(b, "ssm_conv1d", &dims, self.conv_state, &self.of, x)?;
        let y = b.g.silu(y);
        Ok(b.name(y, "ssm_conv"))
    }

    /// The scan over `x` [n_inner, n_tokens], B and C [groups of n_state, n_tokens] with the step sizes `dt` [n_head,
    /// n_tokens] and `a` [n_state or 1, n_head], plus d · x, `d` [1, n_head]: [n_inner, n_tokens].
    pub fn run(
        &self,
        b: &mut Builder<'_>,
        x: Tensor,
        dt: Tensor,
        bc: [Tensor; 2],
        a: Tensor,
        d: Tensor,
    ) -> Tensor {
        let ([n_inner, n_tokens, ..], ssm) = (b.g.ne(x), &b.cfg.ssm);
        let head_dim = n_inner / ssm.n_head;
        let x = b.g.split_heads(x, ssm.n_head);
        let [in_b, in_c] = bc.map(|part| b.g.split_heads(part, ssm.n_group.max(1)));

        let dims = [ssm.n_state, head_dim, ssm.n_head, b.batch.n_state_slots];
        let states = b.g.reshape(self.scan_state, &dims);
        let both = b.g.ssm_scan_ragged(states, x, dt, a, in_b, in_c, self.of.reads, self.of.query_starts);
        let y = outputs_and_states(b, both, self.scan_state, &self.of, &[head_dim, ssm.n_head, n_tokens]);
        let skipped = b.g.mul(x, d);
        let y = b.g.add(skipped, y);
        let y = b.g.reshape(y, &[n_inner, n_tokens]);
        b.name(y, "ssm_scan")
    }
}
