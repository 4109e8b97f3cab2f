#![no_main]
#![doc = "The fuzz target `envoy_limits`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::envoy_limits::check(data));
