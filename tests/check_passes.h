#pragma once
#include <stdexcept>
#include <string>

#include "compile/recipe.h"
#include "ir/check_program.h"

namespace orrery::test {

/// Fails where a pass leaves a program that is not legal.
inline PassLook check_passes() {
    return [](std::string_view pass, const Program& program, const Mesh*) {
        try {
            check_program(program);
        } catch (const Error& error) {
            throw std::logic_error("after " + std::string(pass) + ": " + error.what());
        }
    };
}

}  // namespace orrery::test
