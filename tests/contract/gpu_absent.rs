//! Without a GPU, a driver or kernels, errors tell the user what to do, and nothing panics.

use cusync::device::{Device, Error};

#[test]
fn opening_a_gpu_that_is_not_there_is_an_error() {
    let error = Device::open(4096).expect_err("no machine has so many GPUs");
    assert!(matches!(error, Error::NoDriver | Error::NoDevice(_)), "{error:?}");
    assert!(error.to_string().contains("help:"), "{error}");
}

#[test]
fn running_without_a_gpu_is_an_error_that_names_the_cpu_executor() {
    if Device::open(0).is_ok() {
        println!("skipped: there is a GPU");
        return;
    }
    let error = cusync::measure::bench_semaphores(0, 10).expect_err("there is no GPU");
    assert!(error.to_string().contains("cpu executor"), "{error}");
}
