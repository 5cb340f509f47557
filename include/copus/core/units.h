// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace copus {

std::string human_count(double n);           // "123.4M", "512"
std::string human_bytes(double bytes);       // "1.21 GiB"
std::string human_duration(double seconds);  // "1h 02m", "3m 07s", "4.2s"

}  // namespace copus
