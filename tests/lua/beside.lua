return { name = "beside" }
