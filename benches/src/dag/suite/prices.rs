//! B&S: ten independent Black-Scholes kernels in double precision.

use cusync_dag::{Argument, DagError, Recording};

use super::check::of_doubles;
use super::{Case, Check, Want, hand, over, uniform};

const KERNELS: usize = 10;

pub(super) fn black_scholes(n: usize) -> Result<Case, DagError> {
    let mut r = Recording::new("B&S").built_for_programmatic_edges();
    let mut checks = Vec::new();
    for kernel in 0..KERNELS {
        let spots: Vec<f64> = uniform(kernel as u64, n, 20.0, 120.0).into_iter().map(f64::from).collect();
        let (spot, price) = (r.filled("spot", of_doubles(&spots)), r.zeros("price", 2 * n));
        // About 200 operations at 30 TFLOP/s, half of which is lost to divisions and roots.
        let us = 3.0 + n as f64 * 200.0 / 15e6;
        r.launch("black_scholes", over(n), us, &[r.read(spot), r.write(price), Argument::U32(n as u32)])?;
        let want = Want::F64(spots.iter().map(|&s| call_price(s)).collect(), 1e-12);
        checks.push(Check { name: "price", buffer: price, want });
    }
    Ok(Case {
        name: "B&S",
        size: format!("10 x {n} doubles"),
        hand: hand::independent(KERNELS),
        recording: r,
        checks,
    })
}

/// Value of the call option that the kernel prices: rate 0.08, volatility 0.3, one year, strike 60.
fn call_price(spot: f64) -> f64 {
    let (rate, volatility, strike) = (0.08_f64, 0.3_f64, 60.0_f64);
    let d1 = ((spot / strike).ln() + rate + volatility * volatility / 2.0) / volatility;
    spot * normal_cdf(d1) - strike * (-rate).exp() * normal_cdf(d1 - volatility)
}

/// Normal distribution function, from the series 1/2 + density(x) * (x + x^3/3 + x^5/(3*5) + ...), whose
/// terms all have the same sign.
fn normal_cdf(x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (x, x, 3.0);
    while term.abs() > 1e-18 * sum.abs() {
        term *= x * x / k;
        sum += term;
        k += 2.0;
    }
    0.5 + sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_the_tables() {
        assert_eq!(normal_cdf(0.0), 0.5);
        assert!((normal_cdf(1.0) - 0.841_344_746_068_542_9).abs() < 1e-15);
        assert!((normal_cdf(-1.96) - 0.024_997_895_148_220_4).abs() < 1e-15);
        // At the money: 60 N(0.41667) - 60 e^-0.08 N(0.11667).
        let want = 60.0 * normal_cdf(0.125 / 0.3) - 60.0 * (-0.08_f64).exp() * normal_cdf(0.035 / 0.3);
        assert!((call_price(60.0) - want).abs() < 1e-12);
        // Deep in the money, a call is worth the spot less the discounted strike.
        assert!((call_price(600.0) - (600.0 - 60.0 * (-0.08_f64).exp())).abs() < 1e-6);
    }
}
