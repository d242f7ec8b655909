"""Problems made smaller without losing the optimum: values, variables and factors that cannot matter are taken out."""
