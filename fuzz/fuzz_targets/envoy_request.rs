#![no_main]
#![doc = "The fuzz target `envoy_request`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::envoy_request::check(data));
