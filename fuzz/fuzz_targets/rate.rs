#![no_main]
#![doc = "The fuzz target `rate`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::rate::check(data));
